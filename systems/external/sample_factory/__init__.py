"""Sample Factory's APPO (Petrenko et al. 2020), version 2; see README.md beside this file."""

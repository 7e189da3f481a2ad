"""What people read: tables and exports of run records."""

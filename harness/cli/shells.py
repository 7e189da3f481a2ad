"""The functions by which shells complete `rlbench`, and where they are installed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rlbench.harness.cli.completing import LINE, SHELL
from rlbench.results.reading.names import known_names

BASH = """\
# bash breaks words at : and =, so what it takes for the last word may be the end of ours
_rlbench() {
    local typed="${COMP_LINE:0:COMP_POINT}" last="${COMP_WORDS[COMP_CWORD]}" word
    local whole="${typed##*[[:space:]]}"
    [[ $last == [:=] ]] && last=""
    COMPREPLY=()
    while IFS= read -r word; do
        word="${word%%$'\\t'*}"
        COMPREPLY+=("${word#"${whole%"$last"}"}")
        [[ $word == *[:=/.] ]] && compopt -o nospace
    done < <(SHELL_VAR=bash LINE_VAR="$typed" "$1" 2>/dev/null)
}
complete -o default -o nosort -F _rlbench rlbench
"""
ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
_rlbench() {
    local line value
    local -a ended open
    for line in "${(@f)$(SHELL_VAR=zsh LINE_VAR="${(j: :)words[1,CURRENT]}" ${words[1]} 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value="${${line%%$'\\t'*}//:/\\\\:}"
        [[ $line == *$'\\t'* ]] && value+=":${line#*$'\\t'}"
        [[ ${line%%$'\\t'*} == *[:=/.] ]] && open+=("$value") || ended+=("$value")
    done
    (( $#ended + $#open )) || { _files; return }
    (( $#ended )) && _describe -V rlbench ended
    (( $#open )) && _describe -V rlbench open -S ''
}
compdef _rlbench rlbench
"""
FISH = """\
function __rlbench_complete
    set -l found (env SHELL_VAR=fish LINE_VAR=(commandline -cp | string collect) rlbench 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --command rlbench --no-files --keep-order --arguments '(__rlbench_complete)'
"""
SCRIPTS = {
    name: script.replace("SHELL_VAR", SHELL).replace("LINE_VAR", LINE)
    for name, script in (("bash", BASH), ("zsh", ZSH), ("fish", FISH))
}


def script_of(shell: str) -> str:
    """The function for a shell. Raises ValueError for one that has none."""
    if shell not in SCRIPTS:
        raise ValueError(f"no completion for {shell}; {known_names(shell, SCRIPTS)}")
    return SCRIPTS[shell]


def install(shell: str, home: Path, environment: Mapping[str, str]) -> str:
    """Writes the function where the shell finds it, and has it loaded; says what was done.

    Args:
        shell: `bash`, `zsh` or `fish`.
        home: the user's home folder.
        environment: which may name other folders, as XDG's and zsh's variables do.

    Raises ValueError for another shell, OSError for a file that cannot be written.
    """
    script = script_of(shell)
    if shell == "fish":
        file = Path(environment.get("XDG_CONFIG_HOME") or home / ".config", "fish", "completions", "rlbench.fish")
    else:
        file = Path(environment.get("XDG_DATA_HOME") or home / ".local/share", "rlbench", f"completion.{shell}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(script, encoding="utf-8")
    if shell == "fish":
        return f"{file}: completes `rlbench` in new shells"
    start = home / ".bashrc" if shell == "bash" else Path(environment.get("ZDOTDIR") or home, ".zshrc")
    line = f"[ -r '{file}' ] && . '{file}'  # completion of rlbench"
    there = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if line not in there.splitlines():
        with start.open("a", encoding="utf-8") as lines:
            lines.write(("" if there.endswith("\n") or not there else "\n") + line + "\n")
    return f"{file}: completes `rlbench` in new shells; {start} loads it"


def running_shell(environment: Mapping[str, str]) -> str:
    """The shell that started this process, else the user's. Raises ValueError where neither can complete."""
    import psutil

    names = []
    with suppress(psutil.Error):
        names = [parent.name().removeprefix("-") for parent in psutil.Process(os.getpid()).parents()]
    usual = Path(environment.get("SHELL", "")).name
    found = next((name for name in [*names, usual] if name in SCRIPTS), None)
    if found is None:
        raise ValueError(f"cannot tell which shell this is; name it: --install-completion {'|'.join(SCRIPTS)}")
    return found

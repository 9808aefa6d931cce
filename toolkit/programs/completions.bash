# Completion for bash of dit-train, dit-plan, dit-sample and dit-export. What there is to complete is what the programs
# say of themselves: options by --help, shipped configurations by --doctor, keys by --print-config.

_dit_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }
_dit_files() { mapfile -t COMPREPLY < <(compgen -o plusdirs -f -X "!*.$1" -- "$2"); }

_dit_complete() {
  local program=$1 word=$2 previous=$3 config index
  # Bash takes the "=" of --config=base for a word of its own.
  if [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD - 2]}; fi
  if [[ $word == -* ]]; then
    _dit_words "$("$program" --help 2>/dev/null | grep -oE -- '--[a-z]+(-[a-z]+)*' | sort -u)" "$word"
    return
  fi
  case $previous in
    --config)
      _dit_files toml "$word"
      local files=("${COMPREPLY[@]}")
      _dit_words "$("${program%dit-*}dit-train" --doctor 2>/dev/null | sed -n 's/^ *--config //p')" "$word"
      COMPREPLY+=("${files[@]}")
      ;;
    --set)
      for ((index = 1; index < COMP_CWORD; ++index)); do
        [[ ${COMP_WORDS[index]} == --config ]] || continue
        config=${COMP_WORDS[index + 1]}
        [[ $config != = ]] || config=${COMP_WORDS[index + 2]}
      done
      [[ -n ${config:-} ]] || return
      _dit_words "$("${program%dit-*}dit-train" --config "$config" --print-config 2>/dev/null |
        awk '/^\[/ { table = substr($1, 2, length($1) - 2) } / = / && !/^#/ { print table "." $1 "=" } /^# [a-z_0-9]+ (is not set|has no effect)/ { print table "." $2 "=" }')" "$word"
      compopt -o nospace
      ;;
    --device) _dit_words "auto cpu cuda" "$word" ;;
    --resume) _dit_words latest "$word"; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$word") ;;
    --checkpoint) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
  esac
}

complete -o filenames -F _dit_complete dit-train dit-plan dit-sample dit-export

package args

import (
	"strings"
	"unsafe"
)

// HideSecrets takes arguments of this process and overwrites the values of flags that take a secret, in the memory where everybody on the
// machine can read them. It returns the arguments as they were.
func HideSecrets(given []string, isSecret func(flag string) bool) []string {
	kept := make([]string, len(given))
	for i, arg := range given {
		kept[i] = strings.Clone(arg)
	}
	for i, arg := range given {
		name, value, has := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") || !isSecret(name) {
			continue
		}
		if !has && i+1 < len(given) {
			value = given[i+1]
		}
		overwrite(value)
	}
	return kept
}

// overwrite changes a string in place. That is only possible where its memory is the process's own, as that of arguments is.
func overwrite(s string) {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for i := range b {
		b[i] = '*'
	}
}

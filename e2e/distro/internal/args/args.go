// Package args makes the command lines of Kubernetes' components.
package args

import (
	"maps"
	"slices"
	"strings"
)

// Merge turns defaults into flags and lets the user's key=value texts win: a key that the user gives loses its default,
// and may be given several times. The flags are sorted by key.
func Merge(defaults map[string]string, user []string) []string {
	flags := map[string][]string{}
	for k, v := range defaults {
		flags[k] = []string{v}
	}
	mine := map[string]bool{}
	for _, text := range user {
		k, v, found := strings.Cut(strings.TrimLeft(text, "-"), "=")
		if !found {
			v = "true"
		}
		if !mine[k] {
			mine[k], flags[k] = true, nil
		}
		flags[k] = append(flags[k], v)
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(flags)) {
		for _, v := range flags[k] {
			out = append(out, "--"+k+"="+v)
		}
	}
	return out
}

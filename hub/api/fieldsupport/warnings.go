package fieldsupport

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Warnings names the fields of a spec that are set and have no effect, and says why. spec points to a spec of hub/api.
func Warnings(spec any) []string {
	type group struct {
		why   string
		paths []string
	}
	var groups []*group
	visitWarned(spec, func(f field, e entry) {
		i := slices.IndexFunc(groups, func(g *group) bool { return g.why == e.why })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{why: e.why})
		}
		groups[i].paths = append(groups[i].paths, "spec."+f.path)
	})
	var out []string
	for _, g := range groups {
		verb := "has"
		if len(g.paths) > 1 {
			verb = "have"
		}
		out = append(out, fmt.Sprintf("%s %s no effect: %s", strings.Join(g.paths, ", "), verb, g.why))
	}
	return out
}

// Clear empties the fields of a spec that have no effect, so that nobody takes them for applied.
func Clear(spec any) {
	visitWarned(spec, func(f field, _ entry) { f.value.SetZero() })
}

// visitWarned calls visit for the fields that are set and have no effect.
func visitWarned(spec any, visit func(field, entry)) {
	v := reflect.ValueOf(spec).Elem()
	fields := tables[v.Type()]
	walk(v, "", "", func(f field) bool {
		e := fields[f.pattern]
		if e.support != warned {
			return true
		}
		if isSet(f.value) {
			visit(f, e)
		}
		return false
	})
}

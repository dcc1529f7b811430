package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// shown is how many names a message holds at most.
const shown = 3

// list names machines, the first of them where there are many.
func list(names []string) string {
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// others is a sorted list of names, some of which are looked at without one's own.
type others []string

func (o *others) add(name string) {
	if i, found := slices.BinarySearch(*o, name); !found {
		*o = slices.Insert(*o, i, name)
	}
}

// but leaves out a name. It copies only what messages show, since a thousand machines may wait for the same ones.
func (o others) but(name string) (count int, text string) {
	i, found := slices.BinarySearch(o, name)
	if !found {
		return len(o), list(o)
	}
	rest := append(slices.Clone(o[:min(i, shown)]), o[i+1:min(len(o), i+1+shown)]...)
	count = len(o) - 1
	if count > shown {
		return count, fmt.Sprintf("%s and %d more", strings.Join(rest[:shown], ", "), count-shown)
	}
	return count, list(rest)
}

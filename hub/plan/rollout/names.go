package rollout

import (
	"fmt"
	"slices"

	"github.com/drover-dev/drover/hub/util/message"
)

// maxNames is how many machine names a message holds at most.
const maxNames = 3

func joinNames(names []string) string { return message.JoinNames(names, maxNames) }

// names is a sorted set of machine names.
type names []string

func (n *names) add(name string) {
	if i, found := slices.BinarySearch(*n, name); !found {
		*n = slices.Insert(*n, i, name)
	}
}

// without counts and lists the names other than one. It copies only what the message shows: a thousand machines may ask.
func (n names) without(name string) (count int, text string) {
	i, found := slices.BinarySearch(n, name)
	if !found {
		return len(n), joinNames(n)
	}
	count = len(n) - 1
	text = joinNames(append(slices.Clone(n[:min(i, maxNames)]), n[i+1:min(len(n), i+1+maxNames)]...)[:min(count, maxNames)])
	if count > maxNames {
		text += fmt.Sprintf(" and %d more", count-maxNames)
	}
	return count, text
}

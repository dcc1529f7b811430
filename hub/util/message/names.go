package message

import (
	"fmt"
	"strings"
)

// JoinNames lists names separated by commas: at most limit of them, and how many more there are. Names of other objects in a message are
// limited and in a fixed order because each change of a message of a condition is a write.
func JoinNames(names []string, limit int) string {
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}

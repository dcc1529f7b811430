// Package limitedyaml refuses YAML that is short as a text and large in memory. An alias repeats what its anchor has, and most readers of
// YAML make JSON of a document first, in which all of it is written out: a text of a MiB may have 50 GiB there. The parsers bound how many
// nodes are repeated, and not how long they are.
package limitedyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// perNode is about what a value takes beside its text, in bytes.
const perNode = 16

// Check returns an error for a text that has more than limit bytes with all aliases written out. Of a text with what may be an alias, it
// returns an error as well if it is no YAML.
func Check(text []byte, limit int) error {
	if bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	left := limit
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		document := &yaml.Node{}
		switch err := decoder.Decode(document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !spend(document, &left):
			return fmt.Errorf("with its aliases written out it has more than %d KiB; write it without aliases", limit>>10)
		}
	}
}

// spend takes the size of a node from left, and reports whether there was enough. An alias of what it is in ends in this way, too.
func spend(node *yaml.Node, left *int) bool {
	if *left -= perNode + len(node.Value); *left < 0 {
		return false
	}
	if node.Kind == yaml.AliasNode {
		return spend(node.Alias, left)
	}
	for _, child := range node.Content {
		if !spend(child, left) {
			return false
		}
	}
	return true
}

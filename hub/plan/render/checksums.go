package render

import (
	"path"
	"regexp"
	"strings"

	"github.com/drover-dev/drover/hub/plan/operation"
)

// maxSaved is how many snapshots one report may be about. A task saves one, or two at the end of a minute.
const maxSaved = 4

// savedLine is the line of scripts/save-snapshot.sh about a file.
var savedLine = regexp.MustCompile(`^sha256 ([0-9a-f]{64}) (/[A-Za-z0-9._:@+/-]+)$`)

// SavedSnapshots are the checksums (SHA-256 as hexadecimal digits) of the snapshots that a machine has just saved, by the names of their
// files. output is what its agent has reported of the applied plan, by instruction; what does not look like the script's is left out.
func SavedSnapshots(output map[string][]byte) map[string]string {
	saved := map[string]string{}
	for line := range strings.Lines(string(output[string(operation.TaskSaveSnapshot)])) {
		if match := savedLine.FindStringSubmatch(strings.TrimSpace(line)); match != nil && len(saved) < maxSaved {
			saved[path.Base(match[2])] = match[1]
		}
	}
	return saved
}

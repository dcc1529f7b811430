package render

import (
	"path"
	"slices"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// addRemovals removes from the machine what earlier plans wrote and this one does not want. A removal stays in the plan, so that the
// next render is the same; agents find nothing to do then. It counts for no stamp: what was wanted of the file did, and does no more.
func (b *builder) addRemovals() {
	wanted := map[string]bool{}
	for _, f := range b.files {
		wanted[path.Clean(f.Path)] = true
	}
	var gone []plans.File
	for _, f := range b.Delivered.Files {
		at := path.Clean(f.Path)
		// What a folder holds may be others'.
		if wanted[at] || f.Directory || b.keeps(at) {
			continue
		}
		wanted[at] = true
		gone = append(gone, plans.File{Path: f.Path, Action: plans.ActionDelete, Dynamic: f.Dynamic, Minor: f.Minor})
	}
	slices.SortFunc(gone, func(a, b plans.File) int { return strings.Compare(a.Path, b.Path) })
	b.removed = gone
}

// keeps tells that a file must stay whatever the plan says: where the cluster's certificate authorities are, the hub's or the user's own,
// and a cluster whose servers lose them is lost.
func (b *builder) keeps(path string) bool {
	return strings.HasPrefix(path, b.dataDir+"/server/tls/")
}

package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// checkPlanFiles finds what the agent ignores without an error: files whose names are not those of plans, where there is no plan, and
// fields that it does not know.
func (m Machine) checkPlanFiles(dir string) []Result {
	const check = "plan files"
	root := m.path(dir)
	var results []Result
	found, other := 0, ""
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		switch hidden := path != root && strings.HasPrefix(name, "."); {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden, entry.IsDir(), strings.HasSuffix(name, ".pos"), strings.HasSuffix(name, ".plan.skip"):
		case strings.HasSuffix(name, ".plan"):
			found++
			if field := unknownField(path, entry); field != "" {
				results = append(results, warning(check, fmt.Sprintf("%s has a field %q, which has no effect", name, field),
					"correct or remove it"))
			}
		default:
			other = name
		}
		return nil
	})
	switch {
	case err != nil:
		return append(results, skipped(check, err.Error()))
	case found == 0 && other != "":
		return append(results, warning(check, fmt.Sprintf("%s has no plan: the name of %s does not end in .plan", dir, other),
			"rename it to <name>.plan"))
	}
	return append(results, ok(check, fmt.Sprintf("%d in %s", found, dir)))
}

// unknownField returns a field of a plan file that the agent ignores; empty if there is none, or if the file cannot be read.
func unknownField(path string, entry fs.DirEntry) string {
	if !entry.Type().IsRegular() {
		return ""
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return plans.UnknownField(raw)
}

package notices

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// file is a license or notice.
type file struct {
	// name is its path in the module.
	name string
	// text ends with one newline.
	text string
}

var (
	// licenseName matches LICENSE, COPYING.md, LICENSE-MIT, MIT.LICENSE and so on.
	licenseName = regexp.MustCompile(`(?i)(^|[-._])(un)?(licen[cs]e|copying|notice|copyright|patents)`)
	// sources are the extensions of files that may have such a name without being one.
	sources = []string{".go", ".sh"}
	// skipped are directories whose files are not compiled, or are listed as modules of their own.
	skipped = []string{"vendor", "testdata", "LICENSES"}
)

// readModule reads the licenses and notices of a module: those in its root, and those of code from elsewhere in other directories.
func readModule(root fs.FS) ([]file, error) {
	var found []file
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || slices.Contains(skipped, base)) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || !licenseName.MatchString(base) || slices.Contains(sources, path.Ext(base)) {
			return nil
		}
		f, err := readFile(root, name)
		if err == nil && f.text != "" {
			found = append(found, f)
		}
		return err
	})
	if err == nil && len(found) == 0 {
		err = errors.New("no license found")
	}
	return found, err
}

// readGo reads the license of Go and its grant of patents from GOROOT. Modules that the standard library has copies of have the same.
func readGo(root fs.FS) ([]file, error) {
	var found []file
	for _, name := range []string{"LICENSE", "PATENTS"} {
		f, err := readFile(root, name)
		if err != nil {
			return nil, fmt.Errorf("%w; use Go as go.dev distributes it", err)
		}
		found = append(found, f)
	}
	return found, nil
}

// readFile reads a text, without what is at the end of its lines, so that texts which look the same are the same. That of a binary file is
// empty.
func readFile(root fs.FS, name string) (file, error) {
	raw, err := fs.ReadFile(root, name)
	if err != nil || bytes.IndexByte(raw, 0) >= 0 {
		return file{name: name}, err
	}
	var lines []string
	for line := range strings.Lines(string(raw)) {
		lines = append(lines, strings.TrimRight(line, " \t\r\n\f"))
	}
	text := strings.Trim(strings.Join(lines, "\n"), "\n")
	if text != "" {
		text += "\n"
	}
	return file{name, text}, nil
}

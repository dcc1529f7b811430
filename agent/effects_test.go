package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDoesNotLinkTheTunnelLibrary: both ends of a tunnel are this repository's; the library is for tests.
func TestDoesNotLinkTheTunnelLibrary(t *testing.T) {
	output, err := exec.Command("go", "list", "-deps", ".", "github.com/drover-dev/drover/hub").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	packages := strings.Fields(string(output))
	if !slices.Contains(packages, "github.com/drover-dev/drover/tunnel/session") {
		t.Fatal("the list of packages is not that of the agent")
	}
	for _, p := range packages {
		if strings.HasPrefix(p, "github.com/rancher/remotedialer") {
			t.Errorf("the agent or the hub links %s", p)
		}
	}
}

// writers are the functions of package os that change the file system.
var writers = []string{
	"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "Lchown", "Link", "Mkdir", "MkdirAll", "MkdirTemp", "OpenRoot", "Remove",
	"RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile", "O_CREATE", "O_RDWR", "O_WRONLY", "O_APPEND", "O_TRUNC",
}

// readOnlyRoots are files that use os.Root for reading.
var readOnlyRoots = []string{"source/local/trust.go"}

// TestOnlyHostWritesFiles checks what depguard cannot, since everybody may import package os: files are written below agent/host only,
// where writes are atomic and durable.
func TestOnlyHostWritesFiles(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (path == "host" || entry.Name() == "testhub" || entry.Name() == "trusttest") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if name, ok := selector.X.(*ast.Ident); ok && name.Name == "os" && slices.Contains(writers, selector.Sel.Name) &&
				(selector.Sel.Name != "OpenRoot" || !slices.Contains(readOnlyRoots, path)) {
				t.Errorf("%s: os.%s: only agent/host writes files", files.Position(n.Pos()), selector.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

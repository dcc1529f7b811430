package kubeconfig

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// opens are the functions with which client-go and Cluster API open kubeconfigs.
var opens = []string{
	"clientcmd.Load", "clientcmd.LoadFromFile", "clientcmd.RESTConfigFromKubeConfig", "clientcmd.NewClientConfigFromBytes",
	"clientcmd.NewDefaultClientConfig",
	"clientcmd.NewNonInteractiveClientConfig", "clientcmd.NewInteractiveClientConfig",
	"clientcmd.NewNonInteractiveDeferredLoadingClientConfig",
	"clientcmd.BuildConfigFromFlags", "clientcmd.BuildConfigFromKubeconfigGetter", "remote.RESTConfig", "remote.NewClusterClient",
}

// TestCallers: only this package opens kubeconfigs, and the commands, whose kubeconfigs are files of the user who runs them.
func TestCallers(t *testing.T) {
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		own := strings.HasPrefix(path, "../../access/kubeconfig") || strings.HasPrefix(path, "../../cli/") ||
			strings.HasPrefix(path, "../../testenv/")
		if err != nil || own || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if from, ok := selector.X.(*ast.Ident); ok && slices.Contains(opens, from.Name+"."+selector.Sel.Name) {
				t.Errorf("%s: %s.%s: open kubeconfigs with hub/access/kubeconfig", files.Position(node.Pos()), from.Name, selector.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

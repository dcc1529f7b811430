package fieldsupport

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/drover-dev/drover/"

// scanner finds out which fields of hub/api the product reads. It checks the types of this module's own code, except those that come from
// others: these are taken for empty, so that nothing has to be compiled.
type scanner struct {
	t       *testing.T
	files   *token.FileSet
	checked map[string]*types.Package
	info    types.Info
	// syntax are the files of hub.
	syntax []*ast.File
}

// Import returns a package of this module, or an empty one.
func (s *scanner) Import(name string) (*types.Package, error) {
	if p := s.checked[name]; p != nil {
		return p, nil
	}
	if !strings.HasPrefix(name, module) {
		p := types.NewPackage(name, path.Base(name))
		p.MarkComplete()
		s.checked[name] = p
		return p, nil
	}
	entries, err := os.ReadDir(filepath.Join("../../..", strings.TrimPrefix(name, module)))
	if err != nil {
		s.t.Fatal(err)
	}
	var syntax []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") || strings.HasPrefix(e.Name(), "zz_generated") {
			continue
		}
		f, err := parser.ParseFile(s.files, filepath.Join("../../..", strings.TrimPrefix(name, module), e.Name()), nil,
			parser.SkipObjectResolution)
		if err != nil {
			s.t.Fatal(err)
		}
		syntax = append(syntax, f)
	}
	if len(syntax) == 0 {
		return types.NewPackage(name, path.Base(name)), nil
	}
	config := types.Config{Importer: s, Error: func(error) {}}
	p, _ := config.Check(name, s.files, syntax, &s.info) // what comes from other modules is unknown, and an error
	s.checked[name] = p
	s.syntax = append(s.syntax, syntax...)
	return p, nil
}

// readFields are the fields of hub/api, as "package path.Type.Field", that code of the hub reads. A value that is only copied to a field of
// the same name of another kind is not read.
func readFields(t *testing.T) map[string]bool {
	s := &scanner{t: t, files: token.NewFileSet(), checked: map[string]*types.Package{}, info: types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
	}}
	err := filepath.WalkDir("../..", func(file string, e os.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		switch e.Name() {
		case "integration", "testenv", "testdata", "fieldsupport":
			return filepath.SkipDir
		}
		_, err = s.Import(path.Join(module, "hub", strings.TrimPrefix(filepath.ToSlash(file), "../..")))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	owners := map[types.Object]string{}
	for name, p := range s.checked {
		if !strings.HasPrefix(name, apiPackage) {
			continue
		}
		for _, member := range p.Scope().Names() {
			if structure, ok := p.Scope().Lookup(member).Type().Underlying().(*types.Struct); ok {
				for field := range structure.Fields() {
					owners[field] = name + "." + member + "." + field.Name()
				}
			}
		}
	}
	read := map[string]bool{}
	for _, file := range s.syntax {
		written := s.notRead(file)
		ast.Inspect(file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && !written[selector] {
				if selection := s.info.Selections[selector]; selection != nil && owners[selection.Obj()] != "" {
					read[owners[selection.Obj()]] = true
				}
			}
			return true
		})
	}
	return read
}

// notRead are the selectors that are written, or copied to another kind under their own name.
func (s *scanner) notRead(file *ast.File) map[ast.Node]bool {
	out := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				for e := ast.Unparen(left); e != nil; {
					switch x := e.(type) {
					case *ast.SelectorExpr:
						out[x], e = n.Tok == token.ASSIGN, x.X
					case *ast.IndexExpr:
						e = x.X
					case *ast.StarExpr:
						e = x.X
					default:
						e = nil
					}
				}
			}
		case *ast.CompositeLit:
			if named, ok := s.info.Types[n].Type.(*types.Named); !ok || named.Obj().Pkg() == nil ||
				!strings.HasPrefix(named.Obj().Pkg().Path(), apiPackage) {
				break
			}
			for _, element := range n.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					key, isKey := pair.Key.(*ast.Ident)
					value, isSelector := pair.Value.(*ast.SelectorExpr)
					if isKey && isSelector && key.Name == value.Sel.Name {
						out[value] = true
					}
				}
			}
		}
		return true
	})
	return out
}

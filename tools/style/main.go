// Command style reports what the linters that we use cannot: Go files that are too long, and in the directories of -documented exported
// declarations, constants and struct fields without a comment. Generated files and testdata are left out.
//
// Usage: style [-documented dir,dir,...] <directory>
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLines is how long a file may be.
const maxLines = 400

func main() {
	documented := flag.String("documented", "", "directories below which every exported declaration, constant and field needs a comment")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: style [-documented dir,dir,...] <directory>")
		os.Exit(2)
	}
	c := &checker{root: flag.Arg(0), files: token.NewFileSet()}
	if *documented != "" {
		c.documented = strings.Split(*documented, ",")
	}
	if err := filepath.WalkDir(c.root, c.visit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if c.faults > 0 {
		fmt.Fprintf(os.Stderr, "%d faults of style\n", c.faults)
		os.Exit(1)
	}
}

type checker struct {
	root       string
	documented []string
	files      *token.FileSet
	faults     int
}

func (c *checker) visit(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if entry.IsDir() {
		if name := entry.Name(); name == "testdata" || name == "bin" || strings.HasPrefix(name, ".git") {
			return filepath.SkipDir
		}
		return nil
	}
	if !strings.HasSuffix(path, ".go") {
		return nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(c.files, path, raw, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	if lines := bytes.Count(raw, []byte("\n")); lines > maxLines {
		c.report(file.Package, "the file has %d lines, more than %d: give a part of it a file of its own", lines, maxLines)
	}
	relative, err := filepath.Rel(c.root, path)
	if err != nil {
		return err
	}
	for _, dir := range c.documented {
		if strings.HasPrefix(relative, dir+"/") && !strings.HasSuffix(path, "_test.go") {
			c.declarations(file)
			break
		}
	}
	return nil
}

func (c *checker) report(at token.Pos, format string, args ...any) {
	position := c.files.Position(at)
	name, err := filepath.Rel(c.root, position.Filename)
	if err != nil {
		name = position.Filename
	}
	fmt.Printf("%s:%d: %s\n", name, position.Line, fmt.Sprintf(format, args...))
	c.faults++
}

func (c *checker) declarations(file *ast.File) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			// Methods of types that nobody else can name follow an interface, which says what they do.
			if d.Recv == nil && d.Name.IsExported() && d.Doc == nil {
				c.report(d.Pos(), "function %s has no comment", d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				c.spec(d, spec)
			}
		}
	}
}

func (c *checker) spec(d *ast.GenDecl, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && s.Doc == nil && s.Comment == nil && (d.Doc == nil || d.Lparen.IsValid() && d.Tok == token.CONST) {
				c.report(name.Pos(), "%s %s has no comment", d.Tok, name.Name)
			}
		}
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
			c.report(s.Pos(), "type %s has no comment", s.Name.Name)
		}
		if structure, ok := s.Type.(*ast.StructType); ok && s.Name.IsExported() {
			c.fields(s.Name.Name, structure)
		}
	}
}

func (c *checker) fields(owner string, structure *ast.StructType) {
	for _, field := range structure.Fields.List {
		if inner, ok := field.Type.(*ast.StructType); ok {
			c.fields(owner, inner)
		}
		if field.Doc != nil || field.Comment != nil {
			continue
		}
		for _, name := range field.Names {
			if name.IsExported() {
				c.report(name.Pos(), "field %s.%s has no comment", owner, name.Name)
			}
		}
	}
}

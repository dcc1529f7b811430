// Package notices collects the licenses and notices of what is compiled into Drover's programs: of their modules, which the build
// information of each program lists, and of Go's standard library. Most licenses require that who distributes a program passes them on.
// It reads the modules from Go's module cache, and decides nothing about what their licenses mean. The same programs give the same text.
package notices

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// FileName is the name of the text in archives, packages and images.
const FileName = "THIRD_PARTY_NOTICES"

const introduction = `Drover's programs, beside which this file is distributed, contain code of the
modules that are listed here. Each list of modules, with the name of the file in
the module, is followed by the license or notice that it has there. The source
code of a module is available with "go mod download MODULE@VERSION".
`

// module is a module that is compiled into a program. That of Go's standard library is stdlib.
type module struct{ path, version string }

func (m module) String() string { return m.path + " " + m.version }

// stdlib is the path of a module that stands for Go's standard library. Its version is that of Go.
const stdlib = "Go standard library"

// Collector collects licenses and notices. It reads each module once, for any number of programs. The zero value is ready.
type Collector struct {
	// read holds the files of modules that were read.
	read map[module][]file
	// locate takes the place of the function of that name in tests.
	locate func(context.Context, map[module]string) (map[module]string, error)
}

// Collect returns the text for programs, which are paths of programs that Go has built. It needs the go command, and no network where the
// module cache has what the programs were built from.
func (c *Collector) Collect(ctx context.Context, programs ...string) ([]byte, error) {
	// Modules with their checksums.
	all, missing := map[module]string{}, map[module]string{}
	for _, program := range programs {
		found, err := modules(program)
		if err != nil {
			return nil, fmt.Errorf("reading the modules of %s: %w", program, err)
		}
		maps.Copy(all, found)
	}
	for m, sum := range all {
		if _, ok := c.read[m]; !ok {
			missing[m] = sum
		}
	}
	if err := c.readModules(ctx, missing); err != nil {
		return nil, err
	}
	where := map[string][]string{}
	for m := range all {
		for _, f := range c.read[m] {
			where[f.text] = append(where[f.text], m.String()+" ("+f.name+")")
		}
	}
	return format(where), nil
}

// readModules reads the licenses and notices of modules.
func (c *Collector) readModules(ctx context.Context, missing map[module]string) error {
	if c.read == nil {
		c.read = map[module][]file{}
	}
	find := c.locate
	if find == nil {
		find = locate
	}
	directories, err := find(ctx, missing)
	if err != nil {
		return err
	}
	for m, dir := range directories {
		read := readModule
		if m.path == stdlib {
			read = readGo
		}
		files, err := read(os.DirFS(dir))
		if err != nil {
			return fmt.Errorf("reading the licenses of %s in %s: %w", m, dir, err)
		}
		c.read[m] = files
	}
	return nil
}

// format writes each text after the list of where it is.
func format(where map[string][]string) []byte {
	var sections []string
	for text, list := range where {
		slices.Sort(list)
		sections = append(sections, strings.Repeat("=", 80)+"\n"+strings.Join(list, "\n")+"\n"+strings.Repeat("-", 80)+"\n\n"+text)
	}
	// The lists differ in their first line already: a file has one text.
	slices.Sort(sections)
	return []byte(introduction + "\n" + strings.Join(sections, "\n"))
}

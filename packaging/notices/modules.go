package notices

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/drover-dev/drover/packaging/images/sbom"
)

// modules returns the modules that a program was built from, with their checksums as in go.sum. Its own module is not one of them.
func modules(program string) (map[module]string, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	return compiled(info)
}

func compiled(info *debug.BuildInfo) (map[module]string, error) {
	// Experiments follow the version after a space.
	version, _, _ := strings.Cut(info.GoVersion, " ")
	found := map[module]string{{stdlib, version}: ""}
	for _, dependency := range info.Deps {
		m := sbom.Used(dependency)
		if m.Sum == "" {
			return nil, fmt.Errorf("%s %s has no checksum: build without vendor directories and without modules that are replaced by a directory",
				m.Path, m.Version)
		}
		found[module{m.Path, m.Version}] = m.Sum
	}
	return found, nil
}

// locate returns the directories of modules, which it downloads if the module cache does not have them.
func locate(ctx context.Context, modules map[module]string) (_ map[module]string, err error) {
	// Of the module of a working directory, go would use replacements and change go.sum.
	outside, err := os.MkdirTemp("", "notices-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(outside)) }()
	directories := map[module]string{}
	var names []string
	for m := range modules {
		if m.path == stdlib {
			root, err := runGo(ctx, outside, "env", "GOROOT")
			if err != nil {
				return nil, err
			}
			directories[m] = strings.TrimSpace(string(root))
			continue
		}
		names = append(names, m.path+"@"+m.version)
	}
	if len(names) == 0 {
		return directories, nil
	}
	slices.Sort(names)
	// It also fails if it says of a module why.
	out, failed := runGo(ctx, outside, append([]string{"mod", "download", "-json"}, names...)...)
	err = readDownloads(bytes.NewReader(out), modules, directories)
	if err == nil && len(directories) < len(modules) {
		err = errors.Join(errors.New("finding the directories of modules"), failed)
	}
	return directories, err
}

// readDownloads adds the directories of modules in the output of "go mod download -json". A module must have the checksum with which it was
// compiled: outside of a module, go has no go.sum to compare with.
func readDownloads(out io.Reader, modules, directories map[module]string) error {
	var errs []error
	for decoder := json.NewDecoder(out); ; {
		var got struct{ Path, Version, Dir, Sum, Error string }
		err := decoder.Decode(&got)
		if errors.Is(err, io.EOF) {
			return errors.Join(errs...)
		}
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("reading the output of go mod download: %w", err))...)
		}
		m := module{got.Path, got.Version}
		switch want := modules[m]; {
		case got.Error != "":
			errs = append(errs, fmt.Errorf("downloading %s: %s", m, got.Error))
		case got.Sum != want:
			errs = append(errs, fmt.Errorf("downloading %s: checksum is %s, but a program was built with %s", m, got.Sum, want))
		default:
			directories[m] = got.Dir
		}
	}
}

// runGo runs go in a directory and returns its output, also if it fails.
func runGo(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	// Checksums are compared with those of the programs; a database of them would need the network.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOSUMDB=off")
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("running go %s: %w: %s", strings.Join(args[:2], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

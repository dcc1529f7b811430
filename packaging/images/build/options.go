package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/installer/k3s"
	"github.com/drover-dev/drover/installer/layout"
	"github.com/drover-dev/drover/installer/rke2"
	"github.com/drover-dev/drover/packaging/images"
)

// tagPattern matches valid tags, after layout.Tag has replaced "+".
var tagPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// revisionPattern matches a commit, as git names it.
var revisionPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})?$`)

// onlyNone is the value of --only for installers alone.
const onlyNone = "none"

// options validates the flags, before anything is read. epoch is SOURCE_DATE_EPOCH.
func (f *flags) options(epoch string) (images.Options, error) {
	opts := images.Options{Version: f.version, Revision: f.revision, Architectures: f.architectures, Binaries: f.from, Only: f.only}
	if !tagPattern.MatchString(layout.Tag(f.version)) {
		return opts, fmt.Errorf("--version: %q is not valid as an image tag: use letters, digits and any of . _ - +, such as v1.2.3", f.version)
	}
	if !revisionPattern.MatchString(f.revision) {
		return opts, fmt.Errorf("--revision: must be a commit, 40 or 64 hexadecimal digits, got %q", f.revision)
	}
	if err := checkArchitectures(f.architectures); err != nil {
		return opts, fmt.Errorf("--arch: %w", err)
	}
	if info, err := os.Stat(f.from); err != nil || !info.IsDir() {
		return opts, fmt.Errorf("--from: directory %s does not exist; build the programs with make cross", f.from)
	}
	for _, image := range f.only {
		if image != onlyNone && !slices.Contains(images.Names(), image) {
			return opts, fmt.Errorf("--only: unknown image %q; use any of %s, or %s", image, strings.Join(images.Names(), ", "), onlyNone)
		}
	}
	var err error
	if opts.Created, err = creationTime(epoch); err != nil {
		return opts, err
	}
	for _, r := range []struct {
		flag       string
		values     []string
		definition layout.Definition
	}{{"--k3s", f.k3s, k3s.Definition()}, {"--rke2", f.rke2, rke2.Definition()}} {
		for _, value := range r.values {
			release, err := parseRelease(value, r.definition)
			if err != nil {
				return opts, fmt.Errorf("%s: %w", r.flag, err)
			}
			opts.Releases = append(opts.Releases, release)
		}
	}
	return opts, f.checkOutputs()
}

func (f *flags) checkOutputs() error {
	if f.ociLayout == "" && f.bundle == "" && f.tarballs == "" && f.documents == "" && f.push == "" &&
		f.digests == "" {
		return errors.New("specify at least one of --oci-layout, --bundle, --tarballs, --sbom, --digests and --push")
	}
	if f.insecure && f.push == "" {
		return errors.New("--insecure needs --push")
	}
	if f.signKey != "" && f.push == "" {
		return errors.New("--sign-key needs --push")
	}
	if strings.ContainsAny(f.push, "@") || strings.HasSuffix(f.push, "/") || strings.Contains(f.push, "://") {
		return fmt.Errorf("--push: must be a registry, or registry and path, without scheme, digest or trailing slash, got %q", f.push)
	}
	if f.push != "" {
		// Any image has a valid name below a valid prefix.
		if _, err := (images.Image{Name: "images", Repository: "drover/hub", Tag: "any"}).Reference(f.push, f.nameOptions()...); err != nil {
			return fmt.Errorf("--push: %w", err)
		}
	}
	return nil
}

func checkArchitectures(architectures []string) error {
	if len(architectures) == 0 {
		return errors.New("must not be empty")
	}
	seen := map[string]bool{}
	for _, arch := range architectures {
		if err := layout.CheckArchitecture(arch); err != nil {
			return err
		}
		if seen[arch] {
			return fmt.Errorf("duplicate architecture %s", arch)
		}
		seen[arch] = true
	}
	return nil
}

// creationTime parses SOURCE_DATE_EPOCH of the specification of reproducible builds.
func creationTime(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	// The limit is that of the tar format.
	if err != nil || seconds < 0 || seconds >= 1<<33 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: must be seconds since 1970, got %q", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func parseRelease(value string, definition layout.Definition) (images.Release, error) {
	version, dir, ok := strings.Cut(value, "=")
	if !ok || dir == "" {
		return images.Release{}, fmt.Errorf("must be VERSION=DIRECTORY, got %q", value)
	}
	if err := definition.CheckVersion(version); err != nil {
		return images.Release{}, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return images.Release{}, fmt.Errorf("directory %s does not exist", dir)
	}
	return images.Release{Definition: definition, Version: version, Directory: dir}, nil
}

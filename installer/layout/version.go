package layout

import (
	"fmt"
	"regexp"
	"slices"
)

var versionPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?\+([a-z][a-z0-9]*?)[0-9]+$`)

// suffixes of versions after the "+", without the number, by Runtime.
var suffixes = map[string]string{"k3s": "k3s", "rke2": "rke2r"}

// CheckVersion returns an error unless version is one of this distribution: v1.36.3+k3s1, v1.36.3-rc1+rke2r2.
func (d Definition) CheckVersion(version string) error {
	want := suffixes[d.Runtime]
	match := versionPattern.FindStringSubmatch(version)
	if match == nil {
		return fmt.Errorf("version %q must have the form v1.36.3+%s1", version, want)
	}
	if match[2] != want {
		return fmt.Errorf("version %q is not a version of %s, which ends in +%s1", version, d.Title, want)
	}
	return nil
}

// CheckArchitecture returns an error unless images can be built for arch.
func CheckArchitecture(arch string) error {
	if slices.Contains(Architectures, arch) {
		return nil
	}
	return fmt.Errorf("unknown architecture %q: use amd64, arm64 or both", arch)
}

package layout

import (
	"fmt"
	"regexp"
)

var versionPattern = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?\+([a-z][a-z0-9]*?)[0-9]+$`)

// suffixes are what versions carry behind the "+", without its number.
var suffixes = map[string]string{"k3s": "k3s", "rke2": "rke2r"}

// CheckVersion tells whether version is one of this distribution: v1.36.3+k3s1, v1.36.3-rc1+rke2r2.
func (d Definition) CheckVersion(version string) error {
	want := suffixes[d.Runtime]
	match := versionPattern.FindStringSubmatch(version)
	if match == nil {
		return fmt.Errorf("version %q is not of the form v1.36.3+%s1", version, want)
	}
	if match[2] != want {
		return fmt.Errorf("version %q is not one of %s: those end in +%s1", version, d.Title, want)
	}
	return nil
}

// CheckArchitecture tells whether images can be built for arch.
func CheckArchitecture(arch string) error {
	for _, known := range Architectures {
		if arch == known {
			return nil
		}
	}
	return fmt.Errorf("architecture %q is not known: use amd64, arm64 or both", arch)
}

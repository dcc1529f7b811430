package build

import (
	"fmt"
	"regexp"
	"strings"
)

// Version is the version of a package. Both formats order it as number~prerelease+metadata.
type Version struct {
	// Number is major.minor.patch.
	Number string
	// Prerelease sorts before Number; empty for a release.
	Prerelease string
	// Metadata sorts after Number or Prerelease: what was committed since.
	Metadata string
}

var (
	semantic = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.-]+?))??(?:-(\d+-g[0-9a-f]{4,40}))?(-dirty)?(?:\+([0-9A-Za-z.-]+))?$`)
	dashes   = strings.NewReplacer("-", ".")
)

// ParseVersion parses a semantic version, with or without "v", or the output of `git describe --dirty`: v1.2.3-4-gabcdef is four commits
// after v1.2.3, and not a pre-release of it. Other versions are refused, since packages could not be ordered by them.
func ParseVersion(text string) (Version, error) {
	m := semantic.FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("version: must be a semantic version such as v1.2.3 or v1.2.3-rc.1, got %q", text)
	}
	var metadata []string
	for _, part := range []string{m[3], strings.TrimPrefix(m[4], "-"), m[5]} {
		if part != "" {
			metadata = append(metadata, dashes.Replace(part))
		}
	}
	return Version{Number: m[1], Prerelease: dashes.Replace(m[2]), Metadata: strings.Join(metadata, ".")}, nil
}

// String is the version without the release of the package.
func (v Version) String() string {
	text := v.Number
	if v.Prerelease != "" {
		text += "~" + v.Prerelease
	}
	if v.Metadata != "" {
		text += "+" + v.Metadata
	}
	return text
}

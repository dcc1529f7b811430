package release

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// version is a parsed version string.
type version struct {
	major, minor, patch int
	// pre is what follows a dash: a version with it comes before the one without.
	pre     string
	runtime string
	// build is the number at the end, 1 for +k3s1.
	build int
}

// compare orders versions of one runtime.
func (v version) compare(o version) int {
	if c := cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor), cmp.Compare(v.patch, o.patch)); c != 0 {
		return c
	}
	if (v.pre == "") != (o.pre == "") {
		if v.pre == "" {
			return 1
		}
		return -1
	}
	return cmp.Or(strings.Compare(v.pre, o.pre), cmp.Compare(v.build, o.build))
}

var versionPattern = regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})\.(\d{1,4})(-[0-9A-Za-z.-]+)?(\+(.+))?$`)

var buildPattern = regexp.MustCompile(`^(k3s|rke2r)(\d{1,4})$`)

func parse(s string) (version, error) {
	fail := func(format string, args ...any) (version, error) {
		return version{}, &VersionError{Version: s, Problem: fmt.Sprintf(format, args...)}
	}
	m := versionPattern.FindStringSubmatch(s)
	switch {
	case s == "":
		return fail("is empty; a version looks like v1.36.3+k3s1 or v1.36.3+rke2r1")
	case m == nil && !strings.HasPrefix(s, "v") && versionPattern.MatchString("v"+s):
		return fail("lacks the v in front; did you mean %q?", "v"+s)
	case m == nil:
		return fail("is not a version; a version looks like v1.36.3+k3s1 or v1.36.3+rke2r1")
	case m[5] == "":
		return fail("lacks the distribution; append +k3s1 or +rke2r1, as in %q", s+"+k3s1")
	case !buildPattern.MatchString(m[6]):
		return fail("ends in %q, which is no build of k3s or RKE2; those look like +k3s1 and +rke2r1", m[5])
	}
	v := version{runtime: Runtime(m[6]), pre: m[4]}
	// The pattern allows nothing but few digits, so that these cannot fail.
	v.major, _ = strconv.Atoi(m[1])
	v.minor, _ = strconv.Atoi(m[2])
	v.patch, _ = strconv.Atoi(m[3])
	v.build, _ = strconv.Atoi(buildPattern.FindStringSubmatch(m[6])[2])
	if v.major != 1 {
		return fail("is no version of Kubernetes: those start with v1")
	}
	return v, nil
}

// Package flavourtest runs tests as a process of another flavour.
package flavourtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// Version is of RKE2.
const Version = "v1.36.3+rke2r1"

// AsRKE2 runs the test in a process that is of RKE2. It returns false in the process that only waits.
func AsRKE2(t *testing.T) bool {
	t.Helper()
	if flavour.Current == flavour.RKE2 {
		return true
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), flavour.VersionVariable+"="+Version)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

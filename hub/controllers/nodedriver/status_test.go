package nodedriver

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/programs"
	"github.com/drover-dev/drover/hub/util/cause"
)

// TestObservedGeneration: a status says which spec it is about.
func TestObservedGeneration(t *testing.T) {
	driver := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	driver.Status.ObservedGeneration = 1
	setStatus(&scope{driver: driver, name: "lab"})
	if got := driver.Status; got.ObservedGeneration != 2 || got.DriverName != "lab" {
		t.Errorf("the status is %+v", got)
	}
}

// noFlags are drivers whose flags cannot be read.
type noFlags struct {
	nodedriver.Drivers
	err error
}

func (d noFlags) Flags(context.Context, string, *managementv3.NodeDriverSpec) ([]plugin.Flag, string, error) {
	return nil, "", d.err
}

func reasonOf(c *cause.Cause) string {
	if c == nil {
		return ""
	}
	return c.Reason
}

// TestFlagsNotRead: the reason says whether the driver is at fault, or what runs it. Only what a retry does not help is not retried.
func TestFlagsNotRead(t *testing.T) {
	for _, tt := range []struct {
		err               error
		download, install string
	}{
		{&programs.FaultError{Message: "checksum"}, "DownloadRefused", ""},
		{&plugin.Error{Message: "crash"}, "", "DriverFailed"},
		{&nodedriver.ProgramError{Err: errors.New("exec format error")}, "", "DriverFailed"},
		{errors.New("no user namespaces"), "", "SandboxFailed"},
	} {
		s := &scope{driver: &managementv3.NodeDriver{}, name: "lab"}
		err := (&Reconciler{Drivers: noFlags{err: tt.err}}).install(t.Context(), s, "")
		if (err == nil) != (tt.download != "") {
			t.Errorf("%v: retried for %v", tt.err, err)
		}
		if download, install := reasonOf(s.download), reasonOf(s.install); download != tt.download || install != tt.install {
			t.Errorf("%v: the reasons are %q and %q, want %q and %q", tt.err, download, install, tt.download, tt.install)
		}
	}
}

//go:build e2e

package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/plans"
)

// TestPowerCut takes the power away in the middle of an instruction. What was done is not done again, and the interrupted instruction runs
// again under its attempt number, so that it can know.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	n := newNode(t, "power")
	n.connect()
	n.install()
	checksum := n.deliver(plans.Plan{
		Files: []plans.File{file("/etc/cut", "before the cut")},
		Instructions: []plans.Instruction{
			shell("first", "echo first-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/ran; echo saved"),
			shell("second", "echo second-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/ran; sync; while [ ! -e /root/go ]; do sleep 0.05; done"),
		},
	})
	until(t, "the second instruction", func() bool { return strings.Contains(n.read("/root/ran"), "second") })
	must(t, n.Kill())
	n.write("/root/go", "", 0o600)
	must(t, n.Boot(t.Context()))
	status := n.ended()
	if status.State != plans.StateSucceeded || status.AppliedChecksum != checksum || status.Revision != 1 ||
		string(status.AppliedOutput["first"]) != "saved\n" {
		t.Errorf("got %+v", status)
	}
	if diff := cmp.Diff("first-1\nsecond-1\nsecond-1\n", n.read("/root/ran")); diff != "" {
		t.Error(diff)
	}
	if got := n.read("/etc/cut"); got != "before the cut" {
		t.Errorf("the file says %q", got)
	}
}

// TestPowerCutAfterAnInstruction takes the power away when a plan has just been applied, with everything lost that is not on the disk. What
// its program has written is there: the program does not run again. It runs alone: another host that syncs syncs this one's disk too.
func TestPowerCutAfterAnInstruction(t *testing.T) {
	n := newNode(t, "powerdone", varDir)
	n.connect()
	n.install()
	written := varDir + "/written"
	checksum := n.deliver(plans.Plan{Instructions: []plans.Instruction{shell("install", "echo ran >>"+written)}})
	n.ended()
	must(t, n.Kill())
	must(t, n.Boot(t.Context()))
	if status := n.ended(); status.State != plans.StateSucceeded || status.AppliedChecksum != checksum {
		t.Errorf("got %+v", status)
	}
	if got := n.read(written); got != "ran\n" {
		t.Errorf("after the power cut the file of the program says %q", got)
	}
}

// TestPowerCutAfterAnImage takes the power away when an image has just been unpacked and its program runs, with everything lost that is not
// on the disk yet. The image is whole all the same when its program runs again. It runs alone: another host that syncs syncs this one's
// disk too.
func TestPowerCutAfterAnImage(t *testing.T) {
	n := newNode(t, "powerimage", varDir)
	n.connect()
	n.install()
	putImage(t, n)
	must(t, os.Mkdir(n.Path("/root/matrix"), 0o700))
	n.do("sync", "-f", varDir) // the archive and the connection, which the test has written and not the agent
	image := plans.Instruction{CommonInstruction: plans.CommonInstruction{Name: "image", Image: matrixImage}, SaveOutput: true}
	image.Env = []string{"WAIT_FOR=/root/go"}
	checksum := n.deliver(plans.Plan{Instructions: []plans.Instruction{image,
		shell("last", "echo last-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/matrix/ran")}})
	until(t, "the program of the image", func() bool { return len(n.matrixRan()) > 0 })
	must(t, n.Kill())
	n.write("/root/go", "", 0o600)
	must(t, n.Boot(t.Context()))
	status := n.ended()
	if status.State != plans.StateSucceeded || status.AppliedChecksum != checksum || status.Revision != 1 ||
		string(status.AppliedOutput["image"]) != "1000000\n" {
		t.Errorf("got %+v", status)
	}
	if diff := cmp.Diff([]string{"image-1", "image-1", "last-1"}, n.matrixRan()); diff != "" {
		t.Error(diff)
	}
}

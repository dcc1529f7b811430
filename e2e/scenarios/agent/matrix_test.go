//go:build e2e

package agent

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/drover-dev/drover/plans"
)

const (
	matrixImage = "example.com/matrix:1"
	// matrixPlans are applied one after the other, and the agent is killed matrixKills times during each; more where a plan was over before
	// that, until the agent was killed enoughKills times.
	matrixPlans = 10
	matrixKills = 4
	enoughKills = 30
)

// TestKillMatrix kills the agent again and again while it applies plans. Each plan ends as it would have without that: every file is there,
// every instruction ran once, with the attempt number of the first, and the hub hears of one success.
func TestKillMatrix(t *testing.T) {
	t.Parallel()
	n := newNode(t, "matrix")
	n.connect()
	n.install()
	n.fast("TimeoutStopSec=1s\n")
	putImage(t, n)
	// Uninterrupted first, to compare with.
	want := n.matrixRun(0, nil)
	if len(want.Ran) != 7 {
		t.Fatalf("the uninterrupted plan ran %v", want.Ran)
	}
	points := map[string]int{}
	kills := 0
	for i := 1; i <= matrixPlans || kills < enoughKills && i <= 3*matrixPlans; i++ {
		got := n.matrixRun(i, func() {
			for k := range matrixKills {
				// The pauses cover the time that a plan takes, each a little other than the one before.
				time.Sleep(time.Duration((i*matrixKills+k)*37%430) * time.Millisecond)
				pid := n.pid()
				if pid == 0 || n.status().State == plans.StateSucceeded {
					continue
				}
				points[fmt.Sprintf("%s, %d instructions begun", n.status().State, len(n.matrixRan()))]++
				if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
					kills++
					n.running(pid)
				}
			}
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("plan %d ended otherwise than without kills (-want +got):\n%s", i, diff)
		}
	}
	t.Logf("killed %d times, at %d places", kills, len(points))
	for _, place := range slices.Sorted(maps.Keys(points)) {
		t.Logf("%4d  %s", points[place], place)
	}
	if kills < enoughKills {
		t.Errorf("only %d kills: the plans are over too soon for this test", kills)
	}
}

// outcome is what a plan leaves, without what differs between two plans anyway.
type outcome struct {
	Ran    []string
	Files  []string
	Status plans.Status
}

// matrixRun applies a plan, disturbed by what interferes, and tells what came out.
func (n *node) matrixRun(number int, interfere func()) outcome {
	n.t.Helper()
	must(n.t, os.RemoveAll(n.Path("/root/matrix")))
	must(n.t, os.RemoveAll(n.Path("/etc/matrix")))
	must(n.t, os.Mkdir(n.Path("/root/matrix"), 0o700))
	count := "echo $0-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/matrix/ran; sleep 0.1; echo saved by $0"
	instruction := func(name string) plans.Instruction {
		i := shell(name, count)
		i.Args = append(i.Args, name)
		return i
	}
	image := plans.Instruction{CommonInstruction: plans.CommonInstruction{Name: "image", Image: matrixImage}, SaveOutput: true}
	plan := plans.Plan{
		Files: []plans.File{
			file("/etc/matrix/one", fmt.Sprint("plan ", number)), file("/etc/matrix/deep/er/two", strings.Repeat("x", 100_000)),
			{Path: "/etc/matrix/dir", Directory: true, Permissions: "0750"},
		},
		Instructions: []plans.Instruction{instruction("a"), instruction("b"), image, instruction("c"), instruction("d"), instruction("e"),
			instruction("f")},
	}
	before := n.status()
	checksum := n.deliver(plan)
	if interfere != nil {
		interfere()
	}
	status := n.ended()
	if status.AppliedChecksum != checksum || status.Revision != before.Revision+1 || status.SuccessCount != before.SuccessCount+1 {
		n.t.Errorf("plan %d: revision %d after %d, %d successes after %d, applied %s", number, status.Revision, before.Revision,
			status.SuccessCount,
			before.SuccessCount, status.AppliedChecksum)
	}
	status.AppliedChecksum, status.Revision, status.SuccessCount, status.LastApplyTime, status.Progress = "", 0, 0, time.Time{}, nil
	out := outcome{Ran: n.matrixRan(), Status: status}
	for _, path := range []string{"/etc/matrix/one", "/etc/matrix/deep/er/two", "/etc/matrix/dir"} {
		info, err := os.Stat(n.Path(path))
		must(n.t, err)
		out.Files = append(out.Files, fmt.Sprintf("%s %s %d", path, info.Mode(), len(n.read(path))/10))
	}
	if got := n.read("/etc/matrix/one"); got != fmt.Sprint("plan ", number) {
		n.t.Errorf("plan %d: the file says %q", number, got)
	}
	return out
}

func (n *node) matrixRan() []string { return strings.Fields(n.read("/root/matrix/ran")) }

// putImage lays the image of the matrix where the agent looks before it asks a registry.
func putImage(t *testing.T, n *node) {
	t.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	// It waits for a file that it is told of, and says how much data there is.
	text := "#!/bin/sh\necho image-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/matrix/ran; sleep 0.1; while [ -n \"$WAIT_FOR\" ] && [ ! -e \"$WAIT_FOR\" ]; do sleep 0.05; done; tr -d x <./data | wc -c\n"
	for path, content := range map[string]string{"run.sh": text, "data": strings.Repeat("data\n", 200_000)} {
		must(t, w.WriteHeader(&tar.Header{Name: path, Size: int64(len(content)), Mode: 0o755}))
		_, err := io.WriteString(w, content)
		must(t, err)
	}
	must(t, w.Close())
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil })
	must(t, err)
	image, err := mutate.AppendLayers(empty.Image, layer)
	must(t, err)
	tag, err := name.NewTag(matrixImage)
	must(t, err)
	must(t, os.MkdirAll(n.Path(varDir+"/images"), 0o755))
	must(t, tarball.WriteToFile(n.Path(varDir+"/images/matrix.tar"), tag, image))
}

// TestReboot lets a plan reboot its own machine in the middle, as plans do that bring a new kernel: the instruction is told by its attempt
// number that it is the same try, and goes on where it was.
func TestReboot(t *testing.T) {
	t.Parallel()
	n := newNode(t, "reboot")
	n.connect()
	n.install()
	checksum := n.deliver(plans.Plan{Instructions: []plans.Instruction{
		shell("first", "echo first-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/ran"),
		shell("kernel", "echo kernel-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/ran; if [ ! -e /root/rebooted ]; then touch /root/rebooted; "+
			"systemctl reboot; sleep 600; fi"),
		shell("last", "echo last-$CATTLE_AGENT_ATTEMPT_NUMBER >>/root/ran"),
	}})
	status := n.ended()
	if status.State != plans.StateSucceeded || status.AppliedChecksum != checksum {
		t.Errorf("got %+v", status)
	}
	if diff := cmp.Diff("first-1\nkernel-1\nkernel-1\nlast-1\n", n.read("/root/ran")); diff != "" {
		t.Error(diff)
	}
}

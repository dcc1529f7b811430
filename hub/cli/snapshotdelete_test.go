package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var demoKey = client.ObjectKey{Namespace: "ns", Name: "demo"}

func TestSnapshotsOf(t *testing.T) {
	names, err := snapshotsOf(demoKey, []string{"b", "ns/a", "a", "ns/b"})
	if err != nil || !slices.Equal(names, []string{"b", "a"}) {
		t.Errorf("got %v, %v", names, err)
	}
	for argument, want := range map[string]string{"other/a": "not in the namespace", "": "is not <snapshot>", "ns/": "is not <snapshot>",
		"ns/a/b": "is not <snapshot>"} {
		if names, err := snapshotsOf(demoKey, []string{"a", argument}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v", argument, names, err)
		}
	}
}

func TestDeletable(t *testing.T) {
	snapshot := func(name, cluster, status string, missing bool) *rkev1.ETCDSnapshot {
		s := &rkev1.ETCDSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		s.Spec.ClusterName, s.Status.Missing = cluster, missing
		s.SnapshotFile = rkev1.ETCDSnapshotFile{Name: name, Status: status, Message: "access\ndenied"}
		return s
	}
	c := fakeAPI(t, snapshot("good", "demo", "successful", false), snapshot("gone", "demo", "successful", true),
		snapshot("failed", "demo", "failed", false), snapshot("failed-and-gone", "demo", "failed", true),
		snapshot("other", "another", "successful", false))
	for names, want := range map[string]string{
		"good gone failed-and-gone": "", "good failed": "no file to delete: it failed: access denied",
		"other": `is of the Cluster "another", not of demo`, "none good": `no ETCDSnapshot ns/none; see "hub snapshot list ns/demo"`,
	} {
		lines, err := deletable(t.Context(), c, demoKey, strings.Fields(names))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) ||
			err == nil && len(lines) != len(strings.Fields(names)) {
			t.Errorf("%s: got %+v, %v", names, lines, err)
		}
	}
}

func TestConfirmDeletion(t *testing.T) {
	lines := []snapshotLine{{Namespace: "ns", Name: "a", Node: "n1", Size: 5 << 20, Created: at(0)},
		{Namespace: "ns", Name: "b", Bucket: "backups", Folder: "demo", Created: at(1), Missing: true}}
	want := `This deletes snapshots of Cluster ns/demo for good:
  a (node n1, 5.0Mi, 60s old)
  b (s3://backups/demo, 0, 59s old, missing)
Type yes to continue: `
	for answer, confirmed := range map[string]bool{"yes\n": true, "yes": true, "y\n": false, "": false} {
		var out strings.Builder
		got, err := confirmDeletion(strings.NewReader(answer), &out, demoKey, lines, noon.Add(time.Minute))
		if err != nil || got != confirmed || out.String() != want {
			t.Errorf("%q: got %v, %v\n%s", answer, got, err, out.String())
		}
	}
	ops := deletions([]string{"a", "b"})
	if len(ops) != 2 {
		t.Errorf("got %v", ops)
	}
}

// TestInterruptedQuestion: Ctrl-C at a question ends the command.
func TestInterruptedQuestion(t *testing.T) {
	silent, terminal := io.Pipe()
	defer terminal.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := confirmDeletion(interruptible(ctx, silent), io.Discard, demoKey, nil, noon)
	if got || !errors.Is(err, context.Canceled) || oneLine(err) != "interrupted" {
		t.Errorf("got %v, %v", got, err)
	}
	got, err = confirmDeletion(interruptible(t.Context(), strings.NewReader("yes\n")), io.Discard, demoKey, nil, noon)
	if !got || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestDeletionStopsEarly: who waits for several deletions, of which one cannot be created, reads which were.
func TestDeletionStopsEarly(t *testing.T) {
	created := 0
	c := interceptor.NewClient(fakeAPI(t, &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"},
		Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if created++; created > 1 {
				return errors.New("the API server is gone")
			}
			o.SetName("demo-first")
			return c.Create(ctx, o, opts...)
		},
	})
	o := operationOptions{output: output{form: "json"}, wait: waitOptions{wait: true}}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	err := o.runFor(cmd, c, demoKey, deletions([]string{"a", "b", "c"})...)
	if err == nil || !strings.Contains(err.Error(), "is gone") || !strings.Contains(err.Error(), "ETCDSnapshotDelete/demo-first") ||
		created != 2 {
		t.Errorf("got %v after %d creations", err, created)
	}
}

// TestDeletionsAsJSON: the output is one JSON document, also if a later deletion cannot be created.
func TestDeletionsAsJSON(t *testing.T) {
	for _, tt := range []struct {
		snapshots, most int
		want            string
	}{
		{1, 1, `"demo-1"`}, {2, 2, `["demo-1","demo-2"]`}, {3, 1, `["demo-1"]`}, {2, 0, ""},
	} {
		created := 0
		c := interceptor.NewClient(fakeAPI(t, &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo"},
			Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if created++; created > tt.most {
					return errors.New("the API server is gone")
				}
				o.SetName("demo-" + strconv.Itoa(created)) // in place of a random suffix
				return c.Create(ctx, o, opts...)
			},
		})
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetOut(&out)
		o := operationOptions{output: output{form: "json"}}
		err := o.runFor(cmd, c, demoKey, deletions([]string{"a", "b", "c"}[:tt.snapshots])...)
		if (err == nil) != (tt.most == tt.snapshots) {
			t.Errorf("%+v: got %v", tt, err)
		}
		if got := namesIn(t, out.Bytes()); got != tt.want {
			t.Errorf("%+v: got %s of %s", tt, got, out.String())
		}
	}
}

// namesIn returns the name, or the list of names, in a JSON document of operations; empty for no document.
func namesIn(t *testing.T, raw []byte) string {
	t.Helper()
	if len(raw) == 0 {
		return ""
	}
	var several []operationLine
	if err := json.Unmarshal(raw, &several); err == nil {
		var names []string
		for _, line := range several {
			names = append(names, strconv.Quote(line.Name))
		}
		return "[" + strings.Join(names, ",") + "]"
	}
	var one operationLine
	if err := json.Unmarshal(raw, &one); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return strconv.Quote(one.Name)
}

package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// waitFor follows the operation ns/one, and calls then when it is watched. It returns the lines without their times.
func waitFor(ctx context.Context, t *testing.T, c client.WithWatch, then func(client.Client), o waitOptions) ([]string, error) {
	t.Helper()
	watched := interceptor.NewClient(c, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			stream, err := c.Watch(ctx, list, opts...)
			if then != nil {
				go then(c)
			}
			return stream, err
		},
	})
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	op := &operationv1.ETCDSnapshotSave{}
	op.Namespace, op.Name = "ns", "one"
	err := o.until(cmd, watched, op, connection{kubeconfig: "a file"}, output{form: "table"}, operationv1.PhaseSucceeded)
	var lines []string
	for line := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
		lines = append(lines, text)
	}
	return lines, err
}

// set writes the status of ns/one.
func set(t *testing.T, c client.Client, phase operationv1.Phase, change func(*operationv1.ETCDSnapshotSave)) {
	op := &operationv1.ETCDSnapshotSave{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "one"}, op); err != nil {
		t.Error(err)
		return
	}
	op.Status.Phase = phase
	change(op)
	if err := c.Status().Update(t.Context(), op); err != nil {
		t.Error(err)
	}
}

func TestWaitForOperation(t *testing.T) {
	const pending, running, failed, succeeded = operationv1.PhasePending, operationv1.PhaseInProgress, operationv1.PhaseFailed,
		operationv1.PhaseSucceeded
	other := aSave("other", running)
	other.UID = "uid-2"
	for name, test := range map[string]struct {
		then func(client.Client)
		want []string
		err  string
	}{
		"it succeeds": {
			then: func(c client.Client) {
				set(t, c, running, inStep("Prepare", "InProgress", "Waiting for a", "a=InProgress"))
				set(t, c, running, inStep("Save", "InProgress", "Waiting for a, b", "a=InProgress", "b=InProgress"))
				set(t, c, running, inStep("Save", "InProgress", "Waiting for b", "a=Succeeded", "b=InProgress"))
				set(t, c, succeeded, inStep("", "Succeeded", "Saved", "a=Succeeded", "b=Succeeded"))
			},
			want: []string{"Pending: Waiting", "InProgress: Prepare: Waiting for a", "InProgress: Save: Waiting for a, b", "a: Succeeded",
				"b: Succeeded",
				"Succeeded: Saved"},
		},
		"the annotation comes before the status": {
			then: func(c client.Client) {
				op := aSave("one", pending, inStep("", "WaitingForMachine", "Waiting"))
				if err := c.Patch(t.Context(), op, client.RawPatch(types.MergePatchType,
					[]byte(`{"metadata":{"annotations":{"operation.cattle.io/ended":"Succeeded"}}}`))); err != nil {
					t.Error(err)
				}
				set(t, c, succeeded, inStep("", "Succeeded", "Saved"))
			},
			want: []string{"Pending: Waiting", "Succeeded: Saved"},
		},
		"it fails": {
			then: func(c client.Client) {
				set(t, c, running, inStep("Save", "InProgress", "Waiting for a", "a=InProgress"))
				set(t, c, failed, inStep("", "MachineFailed", "Failed on a", "a=Failed=full\x1b[2J disk"))
			},
			want: []string{"Pending: Waiting", "InProgress: Save: Waiting for a", "a: Failed: full\uFFFD[2J disk", "Failed: Failed on a"},
			err:  "ns/ETCDSnapshotSave/one has ended with Failed: Failed on a",
		},
		"it is deleted at once after its end": {
			then: func(c client.Client) {
				set(t, c, succeeded, inStep("", "Succeeded", "Saved", "a=Succeeded"))
				_ = c.Delete(t.Context(), aSave("one", ""))
			},
			want: []string{"Pending: Waiting", "a: Succeeded", "Succeeded: Saved"},
		},
		"it is deleted before": {
			then: func(c client.Client) {
				_ = c.Delete(t.Context(), other)
				_ = c.Delete(t.Context(), aSave("one", ""))
			},
			want: []string{"Pending: Waiting"},
			err:  "ns/ETCDSnapshotSave/one was deleted before it was seen to end",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeAPI(t, aSave("one", pending, inStep("", "WaitingForMachine", "Waiting")), other.DeepCopy())
			got, err := waitFor(t.Context(), t, c, test.then, waitOptions{wait: true})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("got %v, want %s", err, test.err)
			}
		})
	}
	if _, err := waitFor(t.Context(), t, fakeAPI(t), nil, waitOptions{wait: true}); err == nil ||
		err.Error() != `there is no ns/ETCDSnapshotSave/one; see "hub operation list"` {
		t.Errorf("without an operation: %v", err)
	}
}

// TestWaitEndsBeforeTheOperation: the message says that the operation goes on, and how to cancel it.
func TestWaitEndsBeforeTheOperation(t *testing.T) {
	const goesOn = `the operation goes on; "hub operation wait ns/ETCDSnapshotSave/one --kubeconfig 'a file'" waits for it, ` +
		`"hub operation cancel ns/ETCDSnapshotSave/one --kubeconfig 'a file'" cancels it`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := fakeAPI(t, aSave("one", operationv1.PhasePending))
	_, err := waitFor(ctx, t, c, func(client.Client) { cancel() }, waitOptions{wait: true})
	if want := "interrupted: " + goesOn; err == nil || oneLine(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = waitFor(t.Context(), t, c, nil, waitOptions{wait: true, timeout: time.Millisecond})
	if want := "ns/ETCDSnapshotSave/one has not ended within 1ms: " + goesOn; err == nil || oneLine(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestWaitSurvivesTheHub: a hub that is restarted does not end the command, and a missing right does.
func TestWaitSurvivesTheHub(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		end    string
	}{
		"no answer": {answer: errors.New("connection refused")},
		"too busy":  {answer: apierrors.NewServiceUnavailable("starting")},
		"forbidden": {answer: apierrors.NewForbidden(operationv1.GroupVersion.WithResource("etcdsnapshotsaves").GroupResource(), "", nil),
			end: "a right is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watches := 0
			c := interceptor.NewClient(fakeAPI(t, aSave("one", operationv1.PhaseInProgress)), interceptor.Funcs{
				Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					if watches++; watches == 1 {
						set(t, c, operationv1.PhaseSucceeded, func(*operationv1.ETCDSnapshotSave) {})
						return nil, test.answer
					}
					return c.Watch(ctx, list, opts...)
				},
			})
			got, err := waitFor(t.Context(), t, c, nil, waitOptions{wait: true})
			if test.end != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.end) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || len(got) != 3 || !strings.HasSuffix(got[1], "; retrying") || got[2] != "Succeeded" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestWaitForCreatedOperation: a hub that is restarted when it has created an operation does not end the command that waits for it, and
// one that is gone before it was read was deleted.
func TestWaitForCreatedOperation(t *testing.T) {
	t.Parallel()
	reads := 0
	restarted := interceptor.NewClient(fakeAPI(t, aSave("one", operationv1.PhaseSucceeded)), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if reads++; reads == 1 {
				return errors.New("connection refused")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	follow := func(c client.WithWatch) (string, error) {
		var out strings.Builder
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetOut(&out)
		o := waitOptions{wait: true}
		err := o.until(cmd, c, aSave("one", ""), connection{}, output{form: "table"}, operationv1.PhaseSucceeded)
		return out.String(), err
	}
	if out, err := follow(restarted); err != nil || !strings.Contains(out, "Succeeded") {
		t.Errorf("got %q, %v", out, err)
	}
	const deleted = "ns/ETCDSnapshotSave/one was deleted before it was seen to end"
	if _, err := follow(fakeAPI(t)); err == nil || !strings.HasPrefix(err.Error(), deleted) {
		t.Errorf("deleted: got %v", err)
	}
}

// TestWaitWithoutAnswer: who reads JSON sees on standard error that the hub does not answer, and nothing if it is only slow.
func TestWaitWithoutAnswer(t *testing.T) {
	const waiting = "hub: waiting for the hub to answer: reading ns/ETCDSnapshotSave/one"
	for name, test := range map[string]struct {
		answers int // requests before this one fail or take long
		take    time.Duration
		err     error
		want    string
	}{
		"slow":       {answers: 2, take: time.Second},
		"no answer":  {answers: 2, take: time.Minute, want: waiting + "\n"},
		"restarting": {answers: 6, err: errors.New("connection refused"), want: waiting + ": connection refused; retrying\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				c := interceptor.NewClient(fakeAPI(t, aSave("one", operationv1.PhaseSucceeded)), interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if requests++; requests < test.answers {
							time.Sleep(test.take)
							if test.err != nil {
								return test.err
							}
						}
						return c.Get(ctx, key, o, opts...)
					},
				})
				var out, stderr strings.Builder
				p := newProgress(&out, true)
				p.messages = &stderr
				f := &follower{client: c, operation: aSave("one", ""), progress: p, uid: "uid-1"}
				line, err := f.follow(t.Context())
				time.Sleep(time.Minute)
				if err != nil || line.Phase != operationv1.PhaseSucceeded || stderr.String() != test.want {
					t.Errorf("got %+v, %v; on standard error %q, want %q", line, err, stderr.String(), test.want)
				}
				if n := strings.Count(out.String(), "\n"); n != 1 {
					t.Errorf("%d lines of JSON:\n%s", n, out.String())
				}
			})
		})
	}
}

func TestProgressOnATerminal(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, false)
	p.size, p.now = func() (int, int) { return 8, 60 }, func() time.Time { return noon.Add(30 * time.Second) }
	show := func(phase operationv1.Phase, change func(*operationv1.ETCDSnapshotSave)) string {
		out.Reset()
		p.show(operationLineOf(aSave("one", phase, change)))
		return out.String()
	}
	show(operationv1.PhaseInProgress, func(op *operationv1.ETCDSnapshotSave) {
		inStep("Prepare", "InProgress", "", "a=InProgress")(op)
		updated := at(10)
		op.Status.LastUpdated = &updated
	})
	got := show(operationv1.PhaseInProgress, func(op *operationv1.ETCDSnapshotSave) {
		inStep("Save", "InProgress", "Waiting for some machines with long names to save the snapshot", "a=Succeeded", "machine-b=InProgress",
			"c=Failed=disk full", "d=Succeeded", "e=Succeeded")(op)
		updated := at(22)
		op.Status.LastUpdated = &updated
	})
	want := "\x1b[3A\r\x1b[J" + `ns/ETCDSnapshotSave/one: InProgress, 30s
  Prepare: done in 12s
  Save: 3 of 5 machines done: Waiting for some machines wi…
    c         Failed: disk full
    machine-b InProgress
    a         Succeeded
    and 2 more
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got = show(operationv1.PhaseSucceeded, func(op *operationv1.ETCDSnapshotSave) {
		inStep("", "Succeeded", "Saved", "a=Succeeded")(op)
		ended := at(25)
		op.Status.TerminatedAt, op.Status.LastUpdated = &ended, &ended
	})
	want = "\x1b[7A\r\x1b[J" + `ns/ETCDSnapshotSave/one: Succeeded, 25s
  Prepare: done in 12s
  Save: done in 3s
  Saved
    a Succeeded
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestLeftOutMachineIsShown: of a large cluster, a machine that the operation goes on without is not behind all that have succeeded.
func TestLeftOutMachineIsShown(t *testing.T) {
	machines := []operationv1.MachineStatus{{Name: "a", Phase: operationv1.PhaseSucceeded}, {Name: "b", Phase: operationv1.PhaseSucceeded},
		{Name: "c", Phase: operationv1.PhaseCanceled, Message: "The Node is lost"}, {Name: "d", Phase: operationv1.PhaseInProgress}}
	want := []string{"    d InProgress", "    c Canceled: The Node is lost", "    and 2 more"}
	if diff := cmp.Diff(want, machineLines(machines, 3)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

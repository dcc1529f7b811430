package embedded

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/fieldowner"
	answers "github.com/drover-dev/drover/hub/util/response"
)

// TestReportsAtOnce: agents that report all at once do not hold up what the hub writes meanwhile, nor the other way round, and get their
// turn in the end.
func TestReportsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newWriteLimit(1)
		enter := func(ctx context.Context, owner string) (leave func(), err error) {
			r := httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/a/secrets/b?fieldManager="+owner, nil)
			return limit.enter(r.WithContext(ctx))
		}
		const reports = reportsPerProcessor + 4
		enterAll := func(n int, owner string) chan func() {
			entered := make(chan func(), n)
			for range n {
				go func() {
					leave, err := enter(t.Context(), owner)
					if err != nil {
						t.Error(err)
					}
					entered <- leave
				}()
			}
			synctest.Wait()
			return entered
		}
		entered := enterAll(reports, string(fieldowner.Gateway))
		if len(entered) != reportsPerProcessor {
			t.Errorf("%d reports are worked on, want %d", len(entered), reportsPerProcessor)
		}
		hub := enterAll(10*writesPerProcessor, "drover-rkecontrolplane")
		if len(hub) != writesPerProcessor {
			t.Errorf("%d of what the hub writes are worked on, want %d", len(hub), writesPerProcessor)
		}
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := enter(ended, string(fieldowner.Gateway)); err == nil {
			t.Error("a report that has ended while it waited is worked on")
		}
		for range reports {
			(<-entered)()
		}
		for range cap(hub) {
			(<-hub)()
		}
		if !limit.hub.TryAcquire(writesPerProcessor) || !limit.reports.TryAcquire(reportsPerProcessor) {
			t.Error("a turn was not given back")
		}
	})
}

// TestReportsThatWait: a report that has waited for long is refused, so that its agent makes another one, and is not written when the agent
// does not wait for it any more. What the hub writes waits as long as it has to.
func TestReportsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, began := newWriteLimit(1), time.Now()
		written := make(chan string, 2)
		c := &http.Client{Transport: &inProcess{
			handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { written <- r.URL.Query().Get("fieldManager") }),
			running: t.Context(), caller: &user.DefaultInfo{Name: adminName}, writes: limit,
		}}
		put := func(owner client.FieldOwner) error {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://127.0.0.1:6443/?fieldManager="+string(owner), nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := c.Do(r)
			if err == nil {
				_ = answer.Body.Close()
			}
			return err
		}
		if !limit.hub.TryAcquire(writesPerProcessor) || !limit.reports.TryAcquire(reportsPerProcessor) {
			t.Fatal("there are no turns")
		}
		time.AfterFunc(2*reportPatience, func() {
			limit.hub.Release(writesPerProcessor)
			limit.reports.Release(reportsPerProcessor)
		})
		var refused *answers.Error
		err := put(fieldowner.Gateway)
		if !errors.As(err, &refused) || refused.Code != http.StatusTooManyRequests || refused.RetryAfter != reportRetry {
			t.Errorf("a report that waits: %v", err)
		}
		if waited := time.Since(began); waited != reportPatience {
			t.Errorf("it has waited for %s, want %s", waited, reportPatience)
		}
		for _, owner := range []client.FieldOwner{"drover-rkecontrolplane", fieldowner.Gateway} {
			if err := put(owner); err != nil || <-written != string(owner) {
				t.Errorf("what %s writes: %v", owner, err)
			}
		}
	})
}

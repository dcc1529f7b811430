package embedded

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/hub/util/fieldowner"
)

// TestReportsAtOnce: agents that report all at once leave room for what the hub writes meanwhile, and get their turn in the end.
func TestReportsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newWriteLimit(1)
		enter := func(ctx context.Context, owner string) (leave func(), err error) {
			r := httptest.NewRequest(http.MethodPut, "/api/v1/namespaces/a/secrets/b?fieldManager="+owner, nil)
			return limit.enter(r.WithContext(ctx))
		}
		const reports = writesPerProcessor + 4
		entered := make(chan func(), reports)
		for range reports {
			go func() {
				leave, err := enter(t.Context(), string(fieldowner.Gateway))
				if err != nil {
					t.Error(err)
				}
				entered <- leave
			}()
		}
		synctest.Wait()
		if len(entered) != reportsPerProcessor {
			t.Errorf("%d reports are worked on, want %d", len(entered), reportsPerProcessor)
		}
		leave, err := enter(t.Context(), "drover-rkecontrolplane")
		if err != nil {
			t.Fatal(err)
		}
		leave()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := enter(ended, string(fieldowner.Gateway)); err == nil {
			t.Error("a report that has ended while it waited is worked on")
		}
		for range reports {
			(<-entered)()
		}
		if !limit.all.TryAcquire(writesPerProcessor) || !limit.reports.TryAcquire(reportsPerProcessor) {
			t.Error("a turn was not given back")
		}
	})
}

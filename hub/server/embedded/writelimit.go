package embedded

import (
	"context"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/drover-dev/drover/hub/util/fieldowner"
	answers "github.com/drover-dev/drover/hub/util/response"
)

const (
	// writesPerProcessor is how many requests that change something are worked on at the same time. The API server holds an object several
	// times until it is written, half a megabyte for a plan Secret: when hundreds of agents reported at once, that was as much as all else
	// that the hub had in use. More at once are not done sooner.
	writesPerProcessor = 6
	// reportsPerProcessor is how many requests that agents register or report are worked on at the same time, beside these. Neither waits for
	// the other: in one queue a thousand agents that report at once would be before the plans that the hub has for others, and eight reports
	// among the two hundred writes of a change of a thousand clusters were written at three a second.
	reportsPerProcessor = 3
	// reportPatience is how long a report waits for its turn. An agent asks again after half a minute without an answer: when ten thousand
	// reported at once, each had its turn when its agent did not wait any more. reportRetry is after how long it is asked to report again, or
	// up to twice that.
	reportPatience = 15 * time.Second
	reportRetry    = 15 * time.Second
)

// writeLimit bounds the requests that change something and are worked on at the same time: those of the hub, and those that are for agents.
type writeLimit struct{ hub, reports *semaphore.Weighted }

func newWriteLimit(processors int) *writeLimit {
	return &writeLimit{
		hub:     semaphore.NewWeighted(int64(writesPerProcessor * processors)),
		reports: semaphore.NewWeighted(int64(reportsPerProcessor * processors)),
	}
}

// enter waits until the request may be worked on, unless it ends before. The caller calls leave when it has been. The error is a
// *response.Error 429 for what an agent reports when too many others do.
func (l *writeLimit) enter(request *http.Request) (leave func(), err error) {
	if l == nil || !isWrite(request) {
		return func() {}, nil
	}
	turns := l.hub
	if request.URL.Query().Get("fieldManager") == string(fieldowner.Gateway) {
		turns, err = l.reports, waitForReport(request.Context(), l.reports)
	} else {
		err = turns.Acquire(request.Context(), 1)
	}
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	return func() { turns.Release(1) }, nil
}

// waitForReport waits for the turn of a report.
func waitForReport(ctx context.Context, reports *semaphore.Weighted) error {
	patient, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	err := reports.Acquire(patient, 1)
	if err != nil && ctx.Err() == nil {
		return answers.TooMany(reportRetry, "too many machines register or report at the same time; ask again later")
	}
	return err
}

// isWrite reports whether a request changes something. Reviews do not, and somebody may need one to answer a request that does.
func isWrite(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return !strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/") && !strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/")
	}
	return false
}

package engine

import (
	"context"
	"maps"
	"time"

	"github.com/drover-dev/drover/agent/certificates"
	"github.com/drover-dev/drover/agent/retry"
	"github.com/drover-dev/drover/plans"
)

// certificatesInterval is the time between two readings of the certificates on the machine. It is less than the time for which hubs act on
// what an agent has reported that is gone.
const certificatesInterval = 10 * time.Minute

// watchCertificates reads until ctx is done when the certificates of the distribution end, and reports what has changed.
func (r *runner) watchCertificates(ctx context.Context, plan plans.Plan) {
	read := make(chan map[string]time.Time, 1)
	for {
		r.mu.Lock()
		last := r.certificates
		r.mu.Unlock()
		// A disk that hangs must not hold up the next plan, which waits for this function.
		go func() { read <- certificates.Ends(r.engine.Host, plan, last) }()
		select {
		case <-ctx.Done():
			return
		case ends := <-read:
			r.recordCertificates(ends)
		}
		if retry.Sleep(ctx, certificatesInterval) != nil {
			return
		}
	}
}

// recordCertificates takes over the ends of certificates.
func (r *runner) recordCertificates(ends map[string]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.Equal(r.certificates, ends) {
		return
	}
	r.certificates = ends
	r.reportAll()
}

// reportAll hands over probes and certificates once the status of every probe is known: hubs take a report in which everything is healthy
// for that of a machine on which everything was probed. It needs the lock.
func (r *runner) reportAll() {
	if len(r.probes) == r.probeCount {
		r.report()
	}
}

// report hands over probes and certificates. It needs the lock.
func (r *runner) report() {
	r.engine.reporter.Probes(r.plan, r.statuses())
}

// statuses are those of all probes and certificates by their names in the report; nil for none. It needs the lock.
func (r *runner) statuses() map[string]plans.ProbeStatus {
	if len(r.probes)+len(r.certificates) == 0 {
		return nil
	}
	all := maps.Clone(r.probes)
	for path, end := range r.certificates {
		all[plans.CertificateName(path)] = plans.CertificateStatus(end)
	}
	return all
}

// observe takes what the source holds of the runner's plan.
func (r *runner) observe(reported map[string]plans.ProbeStatus) {
	r.mu.Lock()
	r.reported = reported
	r.mu.Unlock()
	select {
	case <-r.firstResults:
		r.reportLost(context.Background())
	default: // follows when all probes have been tried
	}
}

// reportLost reports again what the source does not hold: a hub that was restored from a backup has lost it, and while nothing changes
// nothing else is reported. A snapshot from before the last report leads to a report that changes nothing, and is not written. It does
// nothing when ctx, that of the runner, is done: then the first results may be missing.
func (r *runner) reportLost(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil && !maps.Equal(r.reported, r.statuses()) {
		r.report()
	}
}

// reportedCertificates are the ends of certificates in a status.
func reportedCertificates(s plans.Status) map[string]time.Time {
	ends := map[string]time.Time{}
	for name, status := range s.ProbeStatuses {
		if path, is := plans.CertificatePath(name); is && !status.CertificateNotAfter.IsZero() {
			ends[path] = status.CertificateNotAfter.UTC()
		}
	}
	return ends
}

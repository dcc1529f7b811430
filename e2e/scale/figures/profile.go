package figures

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Who uses processor time. What the garbage collector uses is left out, as if it were distributed over all in proportion.
const (
	ShareHub        = "controllers and gateway of the hub"
	ShareClusterAPI = "controllers of Cluster API"
	ShareAPI        = "API server and etcd"
	ShareWatches    = "watches"
	ShareRest       = "connections, scheduling and the rest"
	shareCollector  = "garbage collector"
)

// Shares are the names of who uses processor time, in the order of tables.
var Shares = []string{ShareHub, ShareClusterAPI, ShareAPI, ShareWatches, ShareRest}

// packages says whose a function is, by the beginning of its name. The first that is found from the root of a stack decides.
var packages = []struct{ prefix, share string }{
	{"runtime.gcBgMarkWorker", shareCollector},
	{"runtime.bgsweep", shareCollector},
	{"github.com/drover-dev/drover/hub/server", ""}, // starts all of them
	{"github.com/drover-dev/drover/hub/cli", ""},
	{"github.com/drover-dev/drover/", ShareHub},
	{"sigs.k8s.io/cluster-api/", ShareClusterAPI},
	{"k8s.io/client-go/tools/cache.", ShareWatches},
	{"k8s.io/apiserver/", ShareAPI},
	{"k8s.io/apiextensions-apiserver/", ShareAPI},
	{"k8s.io/kube-aggregator/", ShareAPI},
	{"k8s.io/kubernetes/", ShareAPI},
	{"go.etcd.io/", ShareAPI},
}

// ReadProfile adds the samples of a profile of the processor, in the format of pprof, to the time of each share.
func ReadProfile(raw []byte, times map[string]time.Duration) error {
	p, err := profile.ParseData(raw)
	if err != nil {
		return fmt.Errorf("decoding a profile: %w", err)
	}
	index, err := p.SampleIndexByName("cpu")
	if err != nil {
		return fmt.Errorf("reading a profile: %w", err)
	}
	for _, sample := range p.Sample {
		if share := shareOf(sample); share != shareCollector {
			times[share] += time.Duration(sample.Value[index])
		}
	}
	return nil
}

// shareOf says whose a sample is. Its locations begin with the function that was running, and the lines of each with the inlined one.
func shareOf(sample *profile.Sample) string {
	for _, location := range slices.Backward(sample.Location) {
		for _, line := range slices.Backward(location.Line) {
			for _, p := range packages {
				if strings.HasPrefix(line.Function.Name, p.prefix) {
					if p.share != "" {
						return p.share
					}
					break
				}
			}
		}
	}
	return ShareRest
}

// ByShare distributes the processor time of the phase by the samples of its profiles. It is empty where there are none.
func (p Phase) ByShare() map[string]time.Duration {
	var all time.Duration
	for _, d := range p.Samples {
		all += d
	}
	out := map[string]time.Duration{}
	for share, d := range p.Samples {
		out[share] = time.Duration(float64(p.CPU) * float64(d) / float64(all))
	}
	return out
}

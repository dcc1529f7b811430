package timelines

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// A record is stored in parts, each with a few subjects and in a ConfigMap of its own, so that a change of one machine does not rewrite
// what is stored of all others. Part 0 has the cluster and says how many more parts there are. Earlier hubs wrote all subjects to part 0.

// DataKey is the key of a ConfigMap that holds a part as JSON.
const DataKey = "timeline"

// subjectsPerPart bounds what a change of one machine rewrites: with the usual 2 to 6 KiB per machine, 16 to 48 KiB.
const subjectsPerPart = 8

// A part is a ConfigMap in the namespace of the cluster, which others may have written. maxParts is more than any cluster needs, and
// maxMissing of how many parts that do not exist the others are looked for.
const (
	maxParts   = 10_000
	maxMissing = 100
	// atOnce is how many parts are read at the same time: one after the other, those of 1,000 machines take 126 round trips. A list would
	// be one request, for which an API server without a watch cache reads all ConfigMaps of the namespace.
	atOnce = 10
)

// Part is the content of one ConfigMap.
type Part struct {
	Record
	// Part is the number of this part.
	Part int `json:"part,omitempty"`
	// Parts, in part 0, is the number of parts beside it.
	Parts int `json:"parts,omitempty"`
}

// Digest is that of a part without the time Observed, which alone is no reason to write it.
type Digest [sha256.Size]byte

// Encode cuts the record to its bounds, and returns what is to be stored: its parts by number, their digests, and their size in bytes.
func (r *Record) Encode() (parts []Part, digests map[int]Digest, size int, err error) {
	r.dropGone()
	for most := maxPhases; ; most = max(most/2, 1) {
		for i := range r.Subjects {
			r.Subjects[i].trim(most)
		}
		parts, digests, size = r.split(), map[int]Digest{}, 0
		for i := range parts {
			raw, err := json.Marshal(parts[i])
			if err != nil {
				return nil, nil, 0, fmt.Errorf("encoding the timeline: %w", err)
			}
			digests[i], size = sha256.Sum256(raw), size+len(raw)
			parts[i].Observed = r.Observed
		}
		if size <= maxRecordBytes || most == 1 {
			return parts, digests, size, nil
		}
	}
}

// split distributes the subjects to parts.
func (r *Record) split() []Part {
	parts := []Part{{}}
	for _, s := range r.Subjects {
		for len(parts) <= s.part {
			parts = append(parts, Part{Part: len(parts)})
		}
		parts[s.part].Subjects = append(parts[s.part].Subjects, s)
	}
	parts[0].Parts = len(parts) - 1
	return parts
}

// freePart returns the first part that has room for another subject.
func (r *Record) freePart() int {
	var counts []int
	for _, s := range r.Subjects {
		for len(counts) <= s.part {
			counts = append(counts, 0)
		}
		counts[s.part]++
	}
	for i, n := range counts {
		if n < subjectsPerPart {
			return i
		}
	}
	return len(counts)
}

// Collector puts together the parts of a cluster's timeline, as they are read or watched.
type Collector struct {
	cluster client.ObjectKey
	texts   map[int]string
	parts   map[int]Part
	// read is how many parts Read has looked for.
	read int
}

// NewCollector returns a Collector without parts.
func NewCollector(cluster client.ObjectKey) *Collector {
	return &Collector{cluster: cluster, texts: map[int]string{}, parts: map[int]Part{}}
}

// Add adds a part, or replaces it. It returns false for a ConfigMap that is no part of this timeline, or that is known already.
func (c *Collector) Add(configMap *corev1.ConfigMap) (changed bool, err error) {
	text, ok := configMap.Data[DataKey]
	if !ok {
		return false, nil
	}
	var p Part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return false, corruptError{fmt.Errorf("decoding ConfigMap %s: %w", client.ObjectKeyFromObject(configMap), err)}
	}
	if p.Parts < 0 || p.Parts > maxParts {
		return false, corruptError{fmt.Errorf("decoding ConfigMap %s: there cannot be %d parts", client.ObjectKeyFromObject(configMap), p.Parts)}
	}
	if configMap.Name != rkev1.TimelinePartName(c.cluster.Name, p.Part) || c.texts[p.Part] == text {
		return false, nil
	}
	for i := range p.Subjects {
		p.Subjects[i].part = p.Part
	}
	c.texts[p.Part], c.parts[p.Part] = text, p
	return true, nil
}

// Record returns the timeline of the parts that are known.
func (c *Collector) Record() *Record {
	record := &Record{}
	for i := range c.parts[0].Parts + 1 {
		p := c.parts[i]
		if p.Observed.After(record.Observed.Time) {
			record.Observed = p.Observed
		}
		record.Subjects = append(record.Subjects, p.Subjects...)
	}
	return record
}

// Read reads all parts. The error is NotFound where there is no timeline.
func (c *Collector) Read(ctx context.Context, from client.Reader) error {
	missing := 0
	for first, next := 0, 1; first < next && missing < maxMissing; {
		found, err := c.get(ctx, from, first, next)
		if err != nil {
			return err
		}
		c.read = next
		for _, configMap := range found {
			if configMap == nil {
				missing++
			} else if _, err := c.Add(configMap); err != nil {
				return err
			}
		}
		first, next = next, min(next+atOnce, c.parts[0].Parts+1)
	}
	return nil
}

// get reads the parts from first to before next at the same time. Those that do not exist are nil, but for part 0.
func (c *Collector) get(ctx context.Context, from client.Reader, first, next int) ([]*corev1.ConfigMap, error) {
	found := make([]*corev1.ConfigMap, next-first)
	group, ctx := errgroup.WithContext(ctx)
	for i := range found {
		group.Go(func() error {
			configMap, part := &corev1.ConfigMap{}, first+i
			key := client.ObjectKey{Namespace: c.cluster.Namespace, Name: rkev1.TimelinePartName(c.cluster.Name, part)}
			err := from.Get(ctx, key, configMap)
			switch {
			case part > 0 && apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return fmt.Errorf("reading ConfigMap %s: %w", key, err)
			}
			found[i] = configMap
			return nil
		})
	}
	return found, group.Wait()
}

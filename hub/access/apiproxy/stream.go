package apiproxy

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/audit"
)

// stream is the cluster's end of a connection that has become another protocol. It counts, and remembers who has ended it.
type stream struct {
	io.ReadWriteCloser
	startedAt              time.Time
	fromCluster, toCluster atomic.Int64
	// over is true once this end is closed; broken, where the cluster was first to end it.
	over, broken atomic.Bool
}

// count begins to count the connection that an answer opens.
func (c *call) count(answer *http.Response) error {
	conn, ok := answer.Body.(io.ReadWriteCloser)
	if !ok {
		return errors.New("the connection cannot be written to")
	}
	c.stream = &stream{ReadWriteCloser: conn, startedAt: time.Now()}
	answer.Body = c.stream
	return nil
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(p)
	s.fromCluster.Add(int64(n))
	s.recordError(err)
	return n, err
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Write(p)
	s.toCluster.Add(int64(n))
	s.recordError(err)
	return n, err
}

func (s *stream) Close() error {
	s.over.Store(true)
	return s.ReadWriteCloser.Close()
}

func (s *stream) recordError(err error) {
	if err != nil && !s.over.Load() {
		s.broken.Store(true)
	}
}

// logStream records what became of a request that has lasted.
func (h *Handler) logStream(r *http.Request) {
	c := callOf(r)
	if c.stream == nil {
		return
	}
	s := c.stream
	h.metrics.bytes.WithLabelValues("to_cluster").Add(float64(s.toCluster.Load()))
	h.metrics.bytes.WithLabelValues("from_cluster").Add(float64(s.fromCluster.Load()))
	endedBy := "client"
	switch {
	case s.broken.Load():
		endedBy = "cluster"
	case r.Context().Err() != nil:
		endedBy = "hub"
	}
	audit.AddAuditAnnotations(r.Context(),
		annotationPrefix+"bytes-to-cluster", strconv.FormatInt(s.toCluster.Load(), 10),
		annotationPrefix+"bytes-from-cluster", strconv.FormatInt(s.fromCluster.Load(), 10),
		annotationPrefix+"duration", time.Since(s.startedAt).Round(time.Millisecond).String(),
		annotationPrefix+"ended-by", endedBy,
	)
}

// describe tells the audit log what a connection is for that is about to become another protocol.
func (c *call) describe(r *http.Request) {
	query := c.url.Query()
	for key, value := range map[string]string{"container": query.Get("container"), "command": strings.Join(query["command"], " ")} {
		if value != "" {
			audit.AddAuditAnnotation(r.Context(), annotationPrefix+key, value)
		}
	}
}

// Package recorder records the answer of a handler together with its write deadline.
package recorder

import (
	"net/http/httptest"
	"time"
)

// Answer is a http.ResponseWriter that also keeps until when the client must have read what is written, which handlers set with a
// http.ResponseController. The zero time is no deadline.
type Answer struct {
	*httptest.ResponseRecorder
	Deadline time.Time
}

// New returns an empty answer without a deadline.
func New() *Answer { return &Answer{ResponseRecorder: httptest.NewRecorder()} }

// SetWriteDeadline keeps the deadline.
func (a *Answer) SetWriteDeadline(deadline time.Time) error {
	a.Deadline = deadline
	return nil
}

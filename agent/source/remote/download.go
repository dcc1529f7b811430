package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/retry"
)

const (
	// downloadTimeout bounds the download of an agent, which is some 50 MB: it is that of an image. downloadSilence ends one that has stopped.
	downloadTimeout = 2 * time.Hour
	downloadSilence = 3 * time.Minute
	// maxResumes is how often in a row a download is resumed without a byte, in some ten minutes. The first time is at once.
	maxResumes     = 15
	maxResumeDelay = time.Minute
)

// download is the body of a binary. One that is cut off is resumed where it ended: a hub gives half an hour to read an answer, and over a
// slow link a download that begins again would never end.
type download struct {
	ctx     context.Context
	cancel  context.CancelFunc
	client  *http.Client
	address string

	body    io.ReadCloser
	silence *silence
	// validator is what the hub calls this version of the file, so that it sends nothing of another one; empty if it has no name for it.
	validator string
	// read is how much was read, and size how long the file is; -1 if the hub does not say.
	read, size int64
	// resumes counts since the last byte.
	resumes int
}

// answerError is an answer without the binary.
type answerError struct {
	address string
	status  int
	text    string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("downloading %s: HTTP %d: %q", e.address, e.status, e.text)
}

// open requests what has not been read.
func (d *download) open() error {
	request, err := http.NewRequestWithContext(d.ctx, http.MethodGet, d.address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set("Accept-Encoding", "identity") // what is read counts as bytes of the file
	want := http.StatusOK
	if d.read > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.read))
		request.Header.Set("If-Range", d.validator)
		want = http.StatusPartialContent
	}
	silence := newSilence(request, downloadSilence)
	response, err := d.client.Do(request.WithContext(silence.ctx))
	if err != nil {
		err = silence.explain(err)
		silence.end()
		return fmt.Errorf("downloading the agent: %w", err)
	}
	if err := d.check(response, want); err != nil {
		response.Body.Close()
		silence.end()
		return err
	}
	if d.read == 0 {
		d.size, d.validator = response.ContentLength, response.Header.Get("ETag")
		if d.validator == "" || strings.HasPrefix(d.validator, "W/") {
			d.validator = response.Header.Get("Last-Modified")
		}
	}
	d.body, d.silence = response.Body, silence
	return nil
}

// check returns an error for an answer that is not what open has requested.
func (d *download) check(response *http.Response, want int) error {
	refused := &answerError{address: d.address, status: response.StatusCode}
	from := response.Header.Get("Content-Range")
	switch {
	case d.read > 0 && response.StatusCode == http.StatusOK:
		refused.text = "the hub hands out another file than before"
	case response.StatusCode != want:
		text, _ := io.ReadAll(io.LimitReader(response.Body, 256))
		refused.text = string(text)
	case d.read > 0 && !strings.HasPrefix(from, fmt.Sprintf("bytes %d-", d.read)):
		refused.text = "Content-Range is " + from
	default:
		return nil
	}
	return refused
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	n, err := d.body.Read(p)
	d.read += int64(n)
	if n > 0 {
		d.resumes = 0
		d.silence.broken()
	}
	switch {
	case err == nil, errors.Is(err, io.EOF) && d.size < 0:
		return n, err
	case d.size >= 0 && d.read >= d.size:
		// Nothing is left to resume, whatever ended the answer.
		return n, io.EOF
	}
	return n, d.resume(d.silence.explain(err))
}

// resume opens the rest of a download that cause has cut off; it returns cause where that fails.
func (d *download) resume(cause error) error {
	d.body.Close()
	d.silence.end()
	for d.validator != "" && d.read > 0 && d.resumes < maxResumes {
		d.resumes++
		if d.resumes > 1 && retry.Sleep(d.ctx, retry.Delay(d.resumes-1, time.Second, maxResumeDelay)) != nil {
			return cause
		}
		err := d.open()
		if err == nil {
			return nil
		}
		if answer, ok := errors.AsType[*answerError](err); ok && !retry.Temporary(answer.status) {
			return err
		}
	}
	return cause
}

// Close implements io.Closer.
func (d *download) Close() error {
	defer d.cancel()
	defer d.silence.end()
	return d.body.Close()
}

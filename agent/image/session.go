package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	registry "github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// acceptable are the kinds of manifest that are asked for.
var acceptable = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.OCIImageIndex), string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ",")

// maxSaid bounds how much of an endpoint's answer gets into an error.
const maxSaid = 300

// session talks to one endpoint about one repository. It is opened when it is first needed.
type session struct {
	endpoint    endpoint
	repo        name.Repository
	wire        *transport
	credentials func(context.Context, name.Repository) []authn.Authenticator

	mu     sync.Mutex
	client *http.Client
	// present are the credentials in use, nil until they were looked up; untried may come after them.
	present authn.Authenticator
	untried []authn.Authenticator
}

// get asks for a manifest or blob. Where credentials are refused, the next ones are tried. The caller closes the body.
func (s *session) get(ctx context.Context, kind, id string, header http.Header) (*http.Response, error) {
	for {
		client, shown, err := s.open(ctx)
		if err == nil {
			var response *http.Response
			if response, err = s.ask(ctx, client, kind, id, header); err == nil {
				return response, nil
			}
		}
		err = plain(err)
		if code := statusOf(err); code != http.StatusUnauthorized && code != http.StatusForbidden || !s.next(shown) {
			return nil, err
		}
	}
}

func (s *session) ask(ctx context.Context, client *http.Client, kind, id string, header http.Header) (*http.Response, error) {
	target := url.URL{Scheme: s.endpoint.url.Scheme, Host: s.endpoint.url.Host, Path: "/v2/" + s.repo.RepositoryStr() + "/" + kind + "/" + id}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header = header.Clone()
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusPartialContent {
		return response, nil
	}
	defer response.Body.Close()
	return nil, newStatusError(response)
}

// open makes the client, which knows by then how to prove who it is, and tells which credentials it shows.
func (s *session) open(ctx context.Context) (*http.Client, authn.Authenticator, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present == nil {
		s.present = authn.Anonymous
		if all := s.credentials(ctx, s.repo); len(all) > 0 {
			s.present, s.untried = all[0], all[1:]
		}
	}
	if s.client == nil {
		proven, err := registry.NewWithContext(ctx, s.repo.Registry, s.present, s.wire, []string{s.repo.Scope(registry.PullScope)})
		if err != nil {
			return nil, s.present, err
		}
		s.client = &http.Client{Transport: proven}
	}
	return s.client, s.present, nil
}

// next takes the credentials after those that were refused, unless somebody has done so already, and tells whether there are any.
func (s *session) next(refused authn.Authenticator) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused != s.present {
		return true
	}
	if len(s.untried) == 0 {
		return false
	}
	s.client, s.present, s.untried = nil, s.untried[0], s.untried[1:]
	return true
}

// manifest fetches a manifest by tag or digest, and what the registry says of which kind it is.
func (s *session) manifest(ctx context.Context, id string) ([]byte, types.MediaType, error) {
	response, err := s.get(ctx, "manifests", id, http.Header{"Accept": {acceptable}})
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxManifest+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading the manifest: %w", err)
	}
	if len(raw) > maxManifest {
		return nil, "", permanent(fmt.Errorf("the manifest is larger than %d bytes", maxManifest))
	}
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	return raw, types.MediaType(strings.TrimSpace(kind)), nil
}

// blob fetches a blob from an offset on. A server that does not know ranges sends all, and what is there already is skipped.
func (s *session) blob(ctx context.Context, layer v1.Descriptor, offset int64) (io.ReadCloser, error) {
	header := http.Header{}
	if offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, layer.Size-1))
	}
	response, err := s.get(ctx, "blobs", layer.Digest.String(), header)
	if offset > 0 && statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
		response, err = s.get(ctx, "blobs", layer.Digest.String(), http.Header{})
	}
	if err != nil {
		return nil, err
	}
	skip, err := begins(response, layer.Size, offset)
	if err == nil {
		_, err = io.CopyN(io.Discard, response.Body, skip)
		err = noEOF(err)
	}
	if err != nil {
		response.Body.Close()
		return nil, err
	}
	return response.Body, nil
}

// begins tells how many bytes before the offset an answer begins. What cannot be the blob, such as a page that asks people to log in, is
// not to be taken for a part of it.
func begins(response *http.Response, size, offset int64) (int64, error) {
	from := int64(0)
	if response.StatusCode == http.StatusPartialContent {
		text := response.Header.Get("Content-Range")
		if _, err := fmt.Sscanf(text, "bytes %d-", &from); err != nil || from > offset {
			return 0, permanent(fmt.Errorf("it answers with the range %q and not from byte %d on", text, offset))
		}
	}
	if sent := response.ContentLength; sent >= 0 && sent != size-from {
		return 0, permanent(fmt.Errorf("it answers with %d bytes and not %d", sent, size-from))
	}
	if kind := response.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/html") {
		return 0, permanent(errors.New("it answers with a page for people"))
	}
	return offset - from, nil
}

// statusError is an answer that is no success.
type statusError struct {
	code int
	said string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("it answers %d %s", e.code, http.StatusText(e.code))
	if e.said != "" {
		text += ": " + e.said
	}
	return text
}

func newStatusError(response *http.Response) *statusError {
	raw, _ := io.ReadAll(io.LimitReader(response.Body, 16<<10))
	var body struct {
		Errors []struct{ Code, Message string } `json:"errors"`
	}
	said := string(raw)
	if json.Unmarshal(raw, &body) == nil && len(body.Errors) > 0 {
		said = body.Errors[0].Code + ": " + body.Errors[0].Message
	} else if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
		said = "" // a page for people
	}
	return &statusError{code: response.StatusCode, said: oneLine(said)}
}

// oneLine makes text from elsewhere fit for an error.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if runes := []rune(text); len(runes) > maxSaid {
		text = string(runes[:maxSaid]) + "…"
	}
	return text
}

// statusOf is the HTTP status of an answer, or 0.
func statusOf(err error) int {
	var own *statusError
	if errors.As(err, &own) {
		return own.code
	}
	var theirs *registry.Error
	if errors.As(err, &theirs) {
		return theirs.StatusCode
	}
	return 0
}

// plain takes the URL out of an error: who was asked is known, and a query may hold a signature.
func plain(err error) error {
	var theirs *registry.Error
	if errors.As(err, &theirs) {
		said := ""
		if len(theirs.Errors) > 0 {
			said = oneLine(string(theirs.Errors[0].Code) + ": " + theirs.Errors[0].Message)
		}
		return &statusError{code: theirs.StatusCode, said: said}
	}
	var located *url.Error
	if errors.As(err, &located) {
		return located.Err
	}
	return err
}

// noEOF makes an end that comes too early an error of its own.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

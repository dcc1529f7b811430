package managementcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	// maxNodes is how many Nodes of a cluster are counted. Kubernetes supports 5,000.
	maxNodes = 50_000
	// maxObject is the size in bytes of the metadata of a Node, or of an event, that is read at most.
	maxObject = 1 << 20
	// maxToken is how many bytes are read for what is between objects, white space included, which a json.Decoder searches again and again.
	maxToken = 4 << 10
	// maxName is the longest name of a Node, and maxVersion the longest resourceVersion.
	maxName, maxVersion = 253, 64
	// listTimeout bounds a list, and minWatch to twice that is how long a watch takes.
	listTimeout = 5 * time.Minute
	minWatch    = 5 * time.Minute
)

var (
	errTooLarge     = errors.New("an object, or what is between two objects, is longer than the hub reads")
	errTooManyNodes = fmt.Errorf("the cluster has more than %d Nodes", maxNodes)
)

// nodeSet are the names of a cluster's Nodes. The cluster may be hostile, so that objects are decoded one by one, each of limited size and
// to no more than its name: a list of empty objects takes a hundred times its length when client-go decodes it.
type nodeSet struct {
	client rest.Interface
	// names is nil until the first list, and after an error of a watch.
	names map[string]struct{}
	// version is where the next watch begins.
	version string
}

func newNodeSet(config *rest.Config) (*nodeSet, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return &nodeSet{client: client}, nil
}

// get requests Nodes as metadata, which is a small part of them.
func (s *nodeSet) get(ctx context.Context, kind string, options metav1.ListOptions) (io.ReadCloser, error) {
	return s.client.Get().Resource("nodes").VersionedParams(&options, scheme.ParameterCodec).
		SetHeader("Accept", "application/json;as="+kind+";g=meta.k8s.io;v=v1,application/json").Stream(ctx)
}

// metadata is what is read of an object or a list.
type metadata struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

func (m metadata) validate() error {
	switch {
	case len(m.Name) > maxName:
		return fmt.Errorf("the name of an object has more than %d bytes", maxName)
	case m.ResourceVersion == "", len(m.ResourceVersion) > maxVersion:
		return fmt.Errorf("an object has no resourceVersion of 1 to %d bytes", maxVersion)
	case m.Continue != "":
		return errors.New("a list is incomplete although no part of it was requested")
	}
	return nil
}

// list reads all Nodes.
func (s *nodeSet) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	body, err := s.get(ctx, "PartialObjectMetadataList", metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	names, whole, in := map[string]struct{}{}, metadata{}, newJSONReader(body)
	err = in.fields(func(field string) error {
		switch field {
		case "metadata":
			return in.decode(&whole)
		case "items":
			return in.items(func() error {
				var item struct{ Metadata metadata }
				if err := in.decode(&item); err != nil {
					return err
				}
				names[item.Metadata.Name] = struct{}{}
				return errors.Join(item.Metadata.validate(), checkCount(names))
			})
		}
		return in.decode(&json.RawMessage{})
	})
	if err != nil {
		return err
	}
	if err := whole.validate(); err != nil {
		return err
	}
	s.names, s.version = names, whole.ResourceVersion
	return nil
}

func checkCount(names map[string]struct{}) error {
	if len(names) > maxNodes {
		return errTooManyNodes
	}
	return nil
}

// watch follows changes of the Nodes until the server ends the watch, and calls changed after each. After an error the Nodes have to be
// listed again.
func (s *nodeSet) watch(ctx context.Context, changed func()) error {
	seconds := int64((minWatch + rand.N(minWatch)).Seconds())
	body, err := s.get(ctx, "PartialObjectMetadata", metav1.ListOptions{
		Watch: true, ResourceVersion: s.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	for in := newJSONReader(body); ; {
		var event struct {
			Type   watch.EventType
			Object struct {
				Metadata metadata
				Code     int // of a Status
			}
		}
		if err := in.decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		object := event.Object.Metadata
		switch event.Type {
		case watch.Added, watch.Modified:
			s.names[object.Name] = struct{}{}
		case watch.Deleted:
			delete(s.names, object.Name)
		case watch.Bookmark:
		case watch.Error:
			return fmt.Errorf("the server ended the watch with code %d", event.Object.Code)
		default:
			return errors.New("an event is of an unknown type")
		}
		if err := errors.Join(object.validate(), checkCount(s.names)); err != nil {
			return err
		}
		s.version = object.ResourceVersion
		changed()
	}
}

// jsonReader reads JSON values one after the other, each of maxObject bytes at most, and what is between them of maxToken.
type jsonReader struct {
	*json.Decoder
	from io.Reader
	left int
}

func newJSONReader(from io.Reader) *jsonReader {
	j := &jsonReader{from: from}
	j.Decoder = json.NewDecoder(j)
	return j
}

// Read implements io.Reader for the decoder.
func (j *jsonReader) Read(p []byte) (int, error) {
	if j.left <= 0 {
		return 0, errTooLarge
	}
	n, err := j.from.Read(p[:min(len(p), j.left)])
	j.left -= n
	return n, err
}

func (j *jsonReader) decode(into any) error {
	j.left = maxObject
	return j.Decode(into)
}

// delimiter reads the beginning or end of an object or array; null is false.
func (j *jsonReader) delimiter(want json.Delim) (bool, error) {
	j.left = maxToken
	switch got, err := j.Token(); {
	case err != nil:
		return false, err
	case got == nil:
		return false, nil
	case got != want:
		return false, fmt.Errorf("the answer has no %s where one belongs", want)
	}
	return true, nil
}

// fields calls read for each field of an object, which must read its value.
func (j *jsonReader) fields(read func(name string) error) error {
	return j.each('{', '}', func() error {
		name, err := j.Token()
		if err != nil {
			return err
		}
		text, _ := name.(string)
		return read(text)
	})
}

// items calls read for each item of an array, which must read it. An array may be null.
func (j *jsonReader) items(read func() error) error { return j.each('[', ']', read) }

func (j *jsonReader) each(begin, end json.Delim, read func() error) error {
	if found, err := j.delimiter(begin); err != nil || !found {
		return err
	}
	for {
		j.left = maxToken
		if !j.More() {
			break
		}
		if err := read(); err != nil {
			return err
		}
	}
	_, err := j.delimiter(end)
	return err
}

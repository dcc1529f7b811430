package managementcluster

import (
	"context"
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

	"github.com/drover-dev/drover/hub/access/clusternodes"
	"github.com/drover-dev/drover/hub/util/limitedjson"
)

const (
	// maxName is the longest name of a Node, and maxVersion the longest resourceVersion.
	maxName, maxVersion = 253, 64
	// listTimeout bounds a list, and minWatch to twice that is how long a watch takes.
	listTimeout = 5 * time.Minute
	minWatch    = 5 * time.Minute
)

// nodeSet are the names of a cluster's Nodes. The cluster may be hostile, so that objects are decoded one by one (limitedjson), and
// to no more than their names.
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
	names, whole, in := map[string]struct{}{}, metadata{}, limitedjson.NewDecoder(body)
	err = in.List(&whole, func() error {
		var item struct{ Metadata metadata }
		if err := in.Decode(&item); err != nil {
			return err
		}
		names[item.Metadata.Name] = struct{}{}
		return errors.Join(item.Metadata.validate(), clusternodes.CheckCount(len(names)))
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
	for in := limitedjson.NewDecoder(body); ; {
		var event struct {
			Type   watch.EventType
			Object struct {
				Metadata metadata
				Code     int // of a Status
			}
		}
		if err := in.Decode(&event); errors.Is(err, io.EOF) {
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
		if err := errors.Join(object.validate(), clusternodes.CheckCount(len(s.names))); err != nil {
			return err
		}
		s.version = object.ResourceVersion
		changed()
	}
}

package workload

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// store holds the objects of a kind, and serves lists and watches of them.
type store[T client.Object] struct {
	mu      sync.Mutex
	version int
	objects map[string]T
	// events are all changes since the beginning, for watches; changed is closed and replaced with each.
	events  []metav1.WatchEvent
	changed chan struct{}
}

func newStore[T client.Object]() *store[T] {
	return &store[T]{objects: map[string]T{}, changed: make(chan struct{})}
}

// get returns a copy of an object.
func (s *store[T]) get(name string) (object T, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object, found = s.objects[name]; found {
		return object.DeepCopyObject().(T), true
	}
	return object, false
}

// set stores an object, which belongs to the store from then on.
func (s *store[T]) set(object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(object)
}

func (s *store[T]) change(name string, change func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object, found := s.objects[name]; found {
		object = object.DeepCopyObject().(T)
		change(object)
		s.put(object)
	}
}

func (s *store[T]) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object, found := s.objects[name]; found {
		delete(s.objects, name)
		s.record("DELETED", object.DeepCopyObject().(T))
	}
}

func (s *store[T]) put(object T) {
	event := "ADDED"
	if _, there := s.objects[object.GetName()]; there {
		event = "MODIFIED"
	}
	s.objects[object.GetName()] = object
	s.record(event, object)
}

// record gives an object a new version and tells watches of it.
func (s *store[T]) record(kind string, object T) {
	s.version++
	object.SetResourceVersion(strconv.Itoa(s.version))
	event := metav1.WatchEvent{Type: kind}
	event.Object.Object = object.DeepCopyObject()
	s.events = append(s.events, event)
	close(s.changed)
	s.changed = make(chan struct{})
}

// serve lists or watches the objects. list is the kind of the list.
func (s *store[T]) serve(list metav1.TypeMeta) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			s.watch(w, r)
			return
		}
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		items := []T{}
		for _, name := range slices.Sorted(maps.Keys(s.objects)) {
			if object := s.objects[name]; selector.Matches(labels.Set(object.GetLabels())) {
				items = append(items, object)
			}
		}
		write(w, http.StatusOK, struct {
			metav1.TypeMeta `json:",inline"`
			Metadata        metav1.ListMeta `json:"metadata"`
			Items           []T             `json:"items"`
		}{list, metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}, items})
	}
}

// watch sends every change after a version, until the client leaves.
func (s *store[T]) watch(w http.ResponseWriter, r *http.Request) {
	sent, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	flusher, ok := w.(http.Flusher)
	if !ok || r.URL.Query().Get("sendInitialEvents") == "true" {
		fail(w, http.StatusUnprocessableEntity, "a watch begins after a list here")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	for {
		s.mu.Lock()
		events, changed := slices.Clone(s.events[min(sent, len(s.events)):]), s.changed
		s.mu.Unlock()
		for _, event := range events {
			if encoder.Encode(event) != nil {
				return
			}
		}
		sent += len(events)
		flusher.Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

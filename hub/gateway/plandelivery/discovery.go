package plandelivery

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/drover-dev/drover/hub/util/response"
)

// Agents that use informer factories ask for discovery before their first watch, and some exit if it is refused. The answers are the
// unaggregated ones that clients fall back to.

// discoveryMediaTypes are JSON, YAML and protobuf.
var discoveryMediaTypes = func() []runtime.SerializerInfo {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).SupportedMediaTypes()
}()

// apiVersions answers /api.
func apiVersions(serverURL string) *metav1.APIVersions {
	versions := &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
	if server, err := url.Parse(serverURL); err == nil {
		versions.ServerAddressByClientCIDRs = append(versions.ServerAddressByClientCIDRs,
			metav1.ServerAddressByClientCIDR{ClientCIDR: "0.0.0.0/0", ServerAddress: server.Host})
	}
	return versions
}

// coreResources answers /api/v1.
func coreResources() *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
		APIResources: []metav1.APIResource{{
			Name: "secrets", SingularName: "secret", Namespaced: true, Kind: "Secret", Verbs: metav1.Verbs{"get", "list", "update", "watch"},
		}},
	}
}

// Discovery serves GET /api, /apis and /api/v1: unaggregated discovery of the one resource that the gateway serves, as JSON, YAML or
// protobuf. A request that accepts none of them is 406.
func (h *Handler) Discovery(w http.ResponseWriter, r *http.Request, _ *Machine) error {
	info, ok := acceptable(r.Header.Values("Accept"))
	if !ok {
		return response.Errorf(http.StatusNotAcceptable, "discovery is served as %s", strings.Join(mediaTypeNames(), ", "))
	}
	var object runtime.Object
	switch r.URL.Path {
	case "/api":
		object = apiVersions(h.ServerURL)
	case "/apis":
		object = &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	default:
		object = coreResources()
	}
	w.Header().Set("Content-Type", info.MediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept")
	_ = info.Serializer.Encode(object, w)
	return nil
}

// ServeVersion serves GET /version: the version of the hub's Kubernetes API, as JSON.
func (h *Handler) ServeVersion(w http.ResponseWriter, _ *http.Request, _ *Machine) error {
	info, err := h.Version()
	if err != nil {
		return fmt.Errorf("reading the version of the API: %w", err)
	}
	response.WriteJSON(w, http.StatusOK, info)
	return nil
}

// Forbid answers every other request to the Kubernetes API with 403.
func (h *Handler) Forbid(_ http.ResponseWriter, r *http.Request, m *Machine) error {
	return response.Errorf(http.StatusForbidden, "a machine reaches only its own plan Secret %s here, not %s %s",
		m.Account, r.Method, r.URL.Path)
}

// acceptable returns the first media type of Accept headers that discovery is served as, and JSON if there is no such header. Aggregated
// discovery is a parameter of JSON ("as=APIGroupDiscoveryList") and not served.
func acceptable(headers []string) (runtime.SerializerInfo, bool) {
	list := strings.Join(headers, ",")
	if strings.TrimSpace(list) == "" {
		list = "*/*"
	}
	for item := range strings.SplitSeq(list, ",") {
		mediaType, parameters, err := mime.ParseMediaType(item)
		if err != nil || parameters["as"] != "" || parameters["q"] == "0" {
			continue
		}
		if mediaType == "*/*" || mediaType == "application/*" {
			mediaType = runtime.ContentTypeJSON
		}
		for _, info := range discoveryMediaTypes {
			if info.MediaType == mediaType {
				return info, true
			}
		}
	}
	return runtime.SerializerInfo{}, false
}

func mediaTypeNames() []string {
	var names []string
	for _, info := range discoveryMediaTypes {
		names = append(names, info.MediaType)
	}
	return names
}

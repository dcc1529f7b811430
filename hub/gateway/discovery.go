package gateway

import (
	"mime"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Agents that are built on informer factories ask for discovery before their first watch, and some exit when it is refused. They learn
// here what the gateway serves: one resource. The answers are the unaggregated ones that clients fall back to.

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

// apiGroups answers /apis: a machine needs none of the named groups.
func apiGroups() *metav1.APIGroupList {
	return &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
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

// serveDiscovery answers every machine with the same object.
func (s *Server) serveDiscovery(object runtime.Object) http.HandlerFunc {
	return s.asMachine(func(w http.ResponseWriter, r *http.Request, _ *machine) {
		info, ok := acceptable(r.Header.Values("Accept"))
		if !ok {
			s.writeStatus(w, r, refuse(http.StatusNotAcceptable, "discovery is served as %s", strings.Join(mediaTypeNames(), ", ")))
			return
		}
		w.Header().Set("Content-Type", info.MediaType)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Vary", "Accept")
		_ = info.Serializer.Encode(object, w)
	})
}

// acceptable returns the first media type of Accept headers that discovery is served as, and JSON where there is no such header. Aggregated
// discovery is a parameter of JSON ("as=APIGroupDiscoveryList"), and is passed over.
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

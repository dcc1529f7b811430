package server

import (
	"context"
	"fmt"
	"net/url"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/server/capi"
)

// The Services, in the system namespace, that lead to the webhooks of a hub that runs in a cluster.
const (
	// WebhookService leads to all replicas. It is for the conversion of stored objects, which a replica that starts may need of itself.
	WebhookService = "drover-webhook"
	// AdmissionService leads to the replicas that are ready. A replica whose node is lost is an address of the other Service for as long as
	// its Pod exists, and nobody answers there.
	AdmissionService = "drover-admission"
)

// prepareWebhooks says how the API server reaches the admission webhooks and makes the certificate that they serve with.
func prepareWebhooks(
	ctx context.Context, c client.Client, opts Options,
) (admissionregistrationv1.WebhookClientConfig, *capi.Certificate, error) {
	target, hosts, err := webhookTarget(opts)
	if err != nil || opts.ExternalCAPI {
		return target, nil, err
	}
	certificate, err := capi.EnsureCertificate(ctx, c, opts.Settings.SystemNamespace, hosts)
	if err != nil {
		return target, nil, err
	}
	target.CABundle = certificate.CA
	return target, certificate, nil
}

func webhookTarget(opts Options) (target admissionregistrationv1.WebhookClientConfig, hosts []string, err error) {
	if opts.WebhookURL == "" {
		namespace := opts.Settings.SystemNamespace
		for _, service := range []string{WebhookService, AdmissionService} {
			host := service + "." + namespace + ".svc"
			hosts = append(hosts, host, host+".cluster.local")
		}
		target.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: AdmissionService, Port: new(int32(443))}
		return target, hosts, nil
	}
	parsed, err := url.Parse(opts.WebhookURL)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
		return target, nil, fmt.Errorf("--webhook-url: must be an https URL, got %q", opts.WebhookURL)
	}
	target.URL = &opts.WebhookURL
	return target, []string{parsed.Hostname()}, nil
}

// conversion is the target for conversion, in the words of another API group: the same URL, or the other Service.
func conversion(target admissionregistrationv1.WebhookClientConfig) *apiextensionsv1.WebhookClientConfig {
	out := &apiextensionsv1.WebhookClientConfig{URL: target.URL, CABundle: target.CABundle}
	if s := target.Service; s != nil {
		out.Service = &apiextensionsv1.ServiceReference{Namespace: s.Namespace, Name: WebhookService, Port: s.Port}
	}
	return out
}

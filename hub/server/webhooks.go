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

// WebhookService is the Service, in the system namespace, that leads to the webhooks of a hub that runs in a cluster.
const WebhookService = "drover-webhook"

// prepareWebhooks says how the API server reaches the webhooks and makes the certificate that they serve with.
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
		host := WebhookService + "." + namespace + ".svc"
		target.Service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: WebhookService, Port: new(int32(443))}
		return target, []string{host, host + ".cluster.local"}, nil
	}
	parsed, err := url.Parse(opts.WebhookURL)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
		return target, nil, fmt.Errorf("--webhook-url: must be an https URL, got %q", opts.WebhookURL)
	}
	target.URL = &opts.WebhookURL
	return target, []string{parsed.Hostname()}, nil
}

// conversion is the same target in the words of another API group.
func conversion(target admissionregistrationv1.WebhookClientConfig) *apiextensionsv1.WebhookClientConfig {
	out := &apiextensionsv1.WebhookClientConfig{URL: target.URL, CABundle: target.CABundle}
	if s := target.Service; s != nil {
		out.Service = &apiextensionsv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: s.Port}
	}
	return out
}

package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

func TestServe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	hanging := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			close(hanging)
			<-r.Context().Done()
		}
	})
	go func() { done <- Serve(ctx, listener, &http.Server{Handler: handler}, slog.New(slog.DiscardHandler)) }()
	url := "http://" + listener.Addr().String()
	if response, err := http.Get(url); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v", response, err)
	}
	go func() {
		if response, err := http.Get(url + "/hang"); err == nil {
			response.Body.Close()
		}
	}()
	<-hanging
	started := time.Now()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if took := time.Since(started); took > time.Minute {
		t.Errorf("stopping took %s", took)
	}
	if _, err := http.Get(url); err == nil {
		t.Error("it still serves")
	}
}

func TestServeOnAClosedListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if err := Serve(t.Context(), listener, &http.Server{}, slog.New(slog.DiscardHandler)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

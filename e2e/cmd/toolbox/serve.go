package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// serve answers on port 8080 with what it is sent, and logs a line with a number every second and for each request.
func serve(ctx context.Context, _ []string, _ io.Reader, out io.Writer) error {
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(out, "request", r.Method, r.URL.Path)
			if r.Method == http.MethodPost {
				_, _ = io.Copy(w, r.Body)
				return
			}
			fmt.Fprintln(w, "this is the toolbox")
		})}
	go func() {
		for n := 0; ; n++ {
			fmt.Fprintln(out, "line", n)
			select {
			case <-ctx.Done():
				_ = server.Close()
				return
			case <-time.After(time.Second):
			}
		}
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

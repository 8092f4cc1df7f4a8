package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// serveHTTP answers on the address until ctx ends. It returns an error at once
// if it cannot listen, and otherwise a function that waits for the end; what
// ends it early goes to fatal.
func serveHTTP(ctx context.Context, address string, handler http.Handler, fatal func(error)) (wait func(), err error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http-listen=%s: %w", address, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // answers are short
	go func() {
		defer close(closed)
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fatal(fmt.Errorf("serve metrics and health: %w", err))
		}
	}()
	return func() { <-closed }, nil
}

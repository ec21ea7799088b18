// What our transport does, by Go's net/http: POST one body over kept-alive TLS connections, with a deadline for each
// question, and read each answer up to the limit. Prints the microseconds of CPU of one question as JSON.
//
//	goclient URL CA_FILE TOKEN IN_FLIGHT QUESTIONS WARM_UP < body
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	timeout       = 30 * time.Second
	maxBody       = 65536
	maxConnection = 16
)

func number(text string) int64 {
	found, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func main() {
	url, caFile, token := os.Args[1], os.Args[2], os.Args[3]
	inFlight, questions, warmUp := number(os.Args[4]), number(os.Args[5]), number(os.Args[6])
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	bundle, err := os.ReadFile(caFile)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		MaxConnsPerHost:     maxConnection,
		MaxIdleConnsPerHost: maxConnection,
		DisableCompression:  true,
	}}

	ask := func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("User-Agent", "dexaflow")
		request.Header.Set("Accept", "application/json")
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := client.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || len(answer) == 0 {
			log.Fatalf("status %d, %d bytes, %v", response.StatusCode, len(answer), err)
		}
	}
	askAll := func(count int64) {
		var left atomic.Int64
		var askers sync.WaitGroup
		left.Store(count)
		for range inFlight {
			askers.Add(1)
			go func() {
				defer askers.Done()
				for left.Add(-1) >= 0 {
					ask()
				}
			}()
		}
		askers.Wait()
	}

	askAll(warmUp)
	began := cpu()
	askAll(questions)
	fmt.Printf("{\"us\": %f}\n", float64((cpu()-began).Microseconds())/float64(questions))
}

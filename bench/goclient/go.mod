module goclient

go 1.22

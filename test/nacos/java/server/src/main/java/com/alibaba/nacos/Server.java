package com.alibaba.nacos;

import com.alibaba.nacos.core.code.ControllerMethodsCache;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.scheduling.annotation.EnableScheduling;

/** Nacos without its console: services, configurations, users. */
@EnableScheduling
@SpringBootApplication
public class Server {

    /** The HTTP API answers "not implemented" for what is not in this list. */
    public Server(ControllerMethodsCache methods) {
        methods.initClassMethod("com.alibaba.nacos.core.controller");
        methods.initClassMethod("com.alibaba.nacos.naming.controllers");
        methods.initClassMethod("com.alibaba.nacos.config.server.controller");
    }

    public static void main(String[] args) {
        SpringApplication.run(Server.class, args);
    }
}
